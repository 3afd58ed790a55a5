"""Reading of files by descriptors: lists, texts, searches, encodings."""
