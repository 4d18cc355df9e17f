import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.LocalDate;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

public final class Invoice {
    public enum Rate {
        STANDARD("0.20"), REDUCED("0.05"), ZERO("0");

        private final BigDecimal factor;

        Rate(String factor) {
            this.factor = new BigDecimal(factor);
        }
    }

    public record Line(String text, int quantity, BigDecimal unitPrice, Rate rate) {
        public Line {
            if (quantity <= 0) {
                throw new IllegalArgumentException("quantity must be positive: " + quantity);
            }
        }

        BigDecimal net() {
            return unitPrice.multiply(BigDecimal.valueOf(quantity));
        }
    }

    private final LocalDate issued;
    private final List<Line> lines;

    public Invoice(LocalDate issued, List<Line> lines) {
        this.issued = issued;
        this.lines = List.copyOf(lines);
    }

    /** Tax is rounded once per rate, not once per line. */
    public Map<Rate, BigDecimal> taxByRate() {
        return lines.stream().collect(Collectors.groupingBy(
                Line::rate,
                Collectors.collectingAndThen(
                        Collectors.reducing(BigDecimal.ZERO, l -> l.net().multiply(l.rate().factor), BigDecimal::add),
                        tax -> tax.setScale(2, RoundingMode.HALF_UP))));
    }

    public LocalDate due() {
        LocalDate date = issued.plusDays(30);
        return switch (date.getDayOfWeek()) {
            case SATURDAY -> date.plusDays(2);
            case SUNDAY -> date.plusDays(1);
            default -> date;
        };
    }
}
