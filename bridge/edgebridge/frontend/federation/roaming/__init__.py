"""Sessions that roam: a client that connects at another gateway finds its session there (docs/roaming.md)."""
