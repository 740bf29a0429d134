"""Check this installation and its way to the server: `facts` reads, `checks` judges."""
