"""What is written: captures, messages, files and tables, each through the one door to outputs."""
