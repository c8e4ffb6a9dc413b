//! Records stack traces raw: stack IDs, addresses, build IDs and file offsets.
