"""The cache of model calls: which questions share an answer, and what becomes of runs that use one."""
