"""The site of the documentation: built from docs/ with Zensical, and checked."""
