"""Reading documents: files and tables to records, within bounds of memory."""
