import numpy as np


def rk4_step(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h * k1 / 2)
    k3 = f(t + h / 2, y + h * k2 / 2)
    k4 = f(t + h, y + h * k3)
    return y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6


def integrate(f, y0, t_span, tol=1e-8, h=1e-2, max_steps=100_000):
    """Integrate y' = f(t, y) with step doubling to control the error."""
    t, t_end = t_span
    y = np.asarray(y0, dtype=float)
    ts, ys = [t], [y]
    for _ in range(max_steps):
        if t >= t_end:
            break
        h = min(h, t_end - t)
        coarse = rk4_step(f, t, y, h)
        fine = rk4_step(f, t + h / 2, rk4_step(f, t, y, h / 2), h / 2)
        error = np.max(np.abs(fine - coarse)) / 15
        if error <= tol:
            t, y = t + h, fine + (fine - coarse) / 15
            ts.append(t)
            ys.append(y)
        scale = 0.9 * (tol / max(error, 1e-16)) ** 0.2
        h *= np.clip(scale, 0.2, 4.0)
    else:
        raise RuntimeError("step limit reached")
    return np.array(ts), np.vstack(ys)
