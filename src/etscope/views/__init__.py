"""Shapes to text or files. A view writes; it does not decide, aggregate or open files."""
