from .ledger import Ledger, UnbalancedError

__all__ = ["Ledger", "UnbalancedError"]
