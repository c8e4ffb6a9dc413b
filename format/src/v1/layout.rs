//! Sizes of the archived roots, held at compile time: a change here is a new version of the format.
