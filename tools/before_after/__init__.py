"""Whether anything is slower than on an earlier checkout, for every timed line of `make bench`."""
