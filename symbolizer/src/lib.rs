//! Gives raw stack traces names on another machine, later.
