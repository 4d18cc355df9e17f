import operator
from enum import Enum, auto

OPERATORS = {
    "+": (1, operator.add),
    "-": (1, operator.sub),
    "*": (2, operator.mul),
    "/": (2, operator.truediv),
}


class Kind(Enum):
    NUMBER = auto()
    OPERATOR = auto()
    OPEN = auto()
    CLOSE = auto()


def tokens(source):
    i = 0
    while i < len(source):
        char = source[i]
        if char.isspace():
            i += 1
        elif char.isdigit() or char == ".":
            j = i
            while j < len(source) and (source[j].isdigit() or source[j] == "."):
                j += 1
            yield Kind.NUMBER, float(source[i:j])
            i = j
        elif char in OPERATORS:
            yield Kind.OPERATOR, char
            i += 1
        elif char in "()":
            yield (Kind.OPEN if char == "(" else Kind.CLOSE), char
            i += 1
        else:
            raise SyntaxError(f"bad character {char!r} in column {i + 1}")


def evaluate(source):
    """Shunting-yard evaluation; all operators are left-associative."""
    operands, pending = [], []

    def reduce_top():
        _, apply = OPERATORS[pending.pop()]
        right, left = operands.pop(), operands.pop()
        operands.append(apply(left, right))

    for kind, value in tokens(source):
        if kind is Kind.NUMBER:
            operands.append(value)
        elif kind is Kind.OPERATOR:
            while pending and pending[-1] != "(" and OPERATORS[pending[-1]][0] >= OPERATORS[value][0]:
                reduce_top()
            pending.append(value)
        elif kind is Kind.OPEN:
            pending.append(value)
        else:
            while pending[-1] != "(":
                reduce_top()
            pending.pop()
    while pending:
        reduce_top()
    (result,) = operands
    return result
