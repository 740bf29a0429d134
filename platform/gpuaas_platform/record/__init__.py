"""Events and audit rows. Both are written in the transaction of the change that they describe."""
