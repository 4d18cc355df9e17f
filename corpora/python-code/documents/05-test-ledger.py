from decimal import Decimal

import pytest

from shop.ledger import InsufficientFunds, Ledger


@pytest.fixture
def ledger():
    book = Ledger(currency="EUR")
    book.open("alice", Decimal("100.00"))
    book.open("bob", Decimal("5.50"))
    return book


def test_transfer_moves_money(ledger):
    ledger.transfer("alice", "bob", Decimal("40.25"))
    assert ledger.balance("alice") == Decimal("59.75")
    assert ledger.balance("bob") == Decimal("45.75")


@pytest.mark.parametrize("amount", ["0", "-1", "0.001"])
def test_rejects_odd_amounts(ledger, amount):
    with pytest.raises(ValueError, match="amount"):
        ledger.transfer("alice", "bob", Decimal(amount))


def test_overdraft_leaves_balances_alone(ledger):
    with pytest.raises(InsufficientFunds) as caught:
        ledger.transfer("bob", "alice", Decimal("5.51"))
    assert caught.value.missing == Decimal("0.01")
    assert ledger.balance("bob") == Decimal("5.50")
