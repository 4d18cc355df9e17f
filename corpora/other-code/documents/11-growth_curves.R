# Fit a logistic growth curve to each plate and estimate its doubling time.
set.seed(42)

logistic <- function(t, cap, rate, mid) cap / (1 + exp(-rate * (t - mid)))

simulate_plate <- function(id, hours = seq(0, 24, by = 1.5)) {
  cap <- runif(1, 0.8, 1.4)
  rate <- runif(1, 0.4, 0.9)
  data.frame(
    plate = id,
    hours = hours,
    density = logistic(hours, cap, rate, 9) + rnorm(length(hours), sd = 0.02)
  )
}

plates <- do.call(rbind, lapply(sprintf("P%02d", 1:6), simulate_plate))

fit_one <- function(d) {
  fit <- tryCatch(
    nls(density ~ logistic(hours, cap, rate, mid),
        data = d,
        start = list(cap = max(d$density), rate = 0.5, mid = 10)),
    error = function(e) NULL
  )
  if (is.null(fit)) return(c(cap = NA, rate = NA, mid = NA))
  coef(fit)
}

estimates <- t(sapply(split(plates, plates$plate), fit_one))
doubling <- log(2) / estimates[, "rate"]

print(round(cbind(estimates, doubling), 3))
cat("median doubling time:", round(median(doubling, na.rm = TRUE), 2), "hours\n")
