//! Exports, each read by a program that others wrote: it must find what the report says.

mod consumers;
mod firefox;
mod otlp;
mod parquet;
mod perfetto;
mod pprof;
mod schemas;
mod speedscope;
mod text;
