"""One file a contender; each is a program that `bench.sandbox` starts with that contender's own Python."""
