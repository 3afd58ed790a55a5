from decimal import ROUND_HALF_EVEN, Decimal


class UnbalancedError(ValueError):
    """The postings of an entry do not add up to zero."""


class Ledger:
    def __init__(self, currency="CHF"):
        self.currency = currency
        self.entries = []

    def post(self, date, postings):
        if sum(postings.values()) != 0:
            raise UnbalancedError(date)
        self.entries.append((date, postings))

    def balance(self, account):
        total = sum(postings.get(account, 0) for _, postings in self.entries)
        return Decimal(total).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
