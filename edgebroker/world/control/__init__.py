"""What an operator may have done to a running gateway over its HTTP door, beside bridges."""
