package warehouse

import java.time.Instant

sealed interface Movement {
    val sku: String
    val at: Instant

    data class Received(override val sku: String, val count: Int, override val at: Instant) : Movement
    data class Shipped(override val sku: String, val count: Int, override val at: Instant) : Movement
    data class Counted(override val sku: String, val found: Int, override val at: Instant) : Movement
}

class OutOfStock(sku: String, missing: Int) : Exception("$sku is short by $missing")

class Inventory private constructor(private val levels: Map<String, Int>) {
    operator fun get(sku: String): Int = levels[sku] ?: 0

    fun after(movement: Movement): Inventory {
        val level = this[movement.sku]
        val next = when (movement) {
            is Movement.Received -> level + movement.count
            is Movement.Counted -> movement.found
            is Movement.Shipped -> {
                if (movement.count > level) throw OutOfStock(movement.sku, movement.count - level)
                level - movement.count
            }
        }
        return Inventory(levels + (movement.sku to next))
    }

    fun below(threshold: Int): List<String> =
        levels.filterValues { it < threshold }.keys.sorted()

    companion object {
        val empty = Inventory(emptyMap())

        fun replay(history: Iterable<Movement>): Inventory =
            history.sortedBy { it.at }.fold(empty, Inventory::after)
    }
}
