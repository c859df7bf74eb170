"""Write tables: terminal, CSV, TSV, JSON, Markdown, Parquet, JUnit."""
