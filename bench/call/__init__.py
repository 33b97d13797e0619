"""Phone calls measured from outside."""
