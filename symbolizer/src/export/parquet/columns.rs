//! Tables as lists of columns, each of which says how it is got from a row; rows → row groups of Parquet.
//!
//! Knows no samples. Types are those that every engine reads: no unsigned numbers, no Parquet timestamps.

use std::fs::File;
use std::io::{BufWriter, IntoInnerError};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray,
    FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::context::Context;

/// Version of the tables' layout; stands in each file.
pub(super) const SCHEMA: &str = "rawstack.dataset.v1";
/// Values that are handed over together.
const BATCH: usize = 8192;
/// The only level of zstd that each build of this program has, so that each writes the same bytes.
const LEVEL: i32 = 1;
/// Bytes of a dictionary at most: enough for the IDs of half a million stacks, which would else stand in each row.
const DICTIONARY: usize = 8 << 20;
/// Bytes of an ID.
const ID_BYTES: i32 = 16;

/// How the values of a column are got. A value that is none is null in a column that may be null, else zero or empty.
pub(super) enum Values<R> {
    /// 32 bits.
    Int32(fn(&Context, &R) -> Option<i32>),
    /// 64 bits, neighbours of which are alike where `bool`.
    Int64(fn(&Context, &R) -> Option<i64>),
    /// 64 bits that mostly grow from row to row.
    Rising(fn(&Context, &R) -> Option<i64>),
    /// A number with a fraction.
    Double(fn(&Context, &R) -> Option<f64>),
    /// Yes or no.
    Bool(fn(&Context, &R) -> Option<bool>),
    /// UTF-8.
    Text(fn(&Context, &R) -> Option<ByteArray>),
    /// An ID that many rows share.
    SharedId(fn(&Context, &R) -> Option<FixedLenByteArray>),
    /// An ID that stands in one row.
    OwnId(fn(&Context, &R) -> Option<FixedLenByteArray>),
    /// A list of IDs.
    Ids(fn(&Context, &R) -> Vec<FixedLenByteArray>),
    /// Texts by distinct texts.
    Map(fn(&Context, &R) -> Vec<(ByteArray, ByteArray)>),
}

/// A column of rows `R`.
pub(super) struct Column<R> {
    name: &'static str,
    is_nullable: bool,
    values: Values<R>,
}

/// A column that has a value in each row.
pub(super) fn column<R>(name: &'static str, values: Values<R>) -> Column<R> {
    Column {
        name,
        is_nullable: false,
        values,
    }
}

/// A column that may be null.
pub(super) fn nullable<R>(name: &'static str, values: Values<R>) -> Column<R> {
    Column {
        is_nullable: true,
        ..column(name, values)
    }
}

/// Writes the file of one table.
pub(super) struct TableWriter<R> {
    columns: Vec<Column<R>>,
    file: SerializedFileWriter<BufWriter<File>>,
}

impl<R> TableWriter<R> {
    /// A writer of table `name` into `file`.
    pub(super) fn new(name: &str, columns: Vec<Column<R>>, file: File) -> Result<Self> {
        let fields = columns.iter().map(Column::schema);
        let schema = Type::group_type_builder(name)
            .with_fields(fields.collect::<Result<_>>()?)
            .build()?;
        let notes = [("rawstack.schema", SCHEMA), ("rawstack.table", name)];
        let notes = notes.map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()));
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_dictionary_page_size_limit(DICTIONARY)
            .set_key_value_metadata(Some(notes.to_vec()));
        for column in &columns {
            let path = ColumnPath::from(column.name);
            match column.values {
                Values::Rising(_) => {
                    properties = properties
                        .set_column_dictionary_enabled(path.clone(), false)
                        .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
                }
                Values::OwnId(_) => {
                    properties = properties.set_column_dictionary_enabled(path, false);
                }
                _ => {}
            }
        }
        let file = BufWriter::with_capacity(1 << 16, file);
        Ok(Self {
            file: SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build()))?,
            columns,
        })
    }

    /// Write `rows` as a row group.
    pub(super) fn write(&mut self, context: &Context, rows: &[R]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in &self.columns {
            column.write(context, rows, &mut group)?;
        }
        group.close()?;
        Ok(())
    }

    /// Write what stands at the end of a file.
    pub(super) fn close(self) -> Result<()> {
        let buffered = self.file.into_inner()?;
        buffered.into_inner().map_err(IntoInnerError::into_error)?;
        Ok(())
    }
}

type Group<'w> = SerializedRowGroupWriter<'w, BufWriter<File>>;

impl<R> Column<R> {
    fn schema(&self) -> Result<TypePtr> {
        let repetition = if self.is_nullable {
            Repetition::OPTIONAL
        } else {
            Repetition::REQUIRED
        };
        let id = |name, repetition| {
            let builder = Type::primitive_type_builder(name, Physical::FIXED_LEN_BYTE_ARRAY);
            builder
                .with_length(ID_BYTES)
                .with_repetition(repetition)
                .build()
        };
        let number = |physical| {
            let builder = Type::primitive_type_builder(self.name, physical);
            builder.with_repetition(repetition).build()
        };
        let schema = match self.values {
            Values::Int32(_) => number(Physical::INT32),
            Values::Int64(_) | Values::Rising(_) => number(Physical::INT64),
            Values::Double(_) => number(Physical::DOUBLE),
            Values::Bool(_) => number(Physical::BOOLEAN),
            Values::Text(_) => text(self.name, repetition),
            Values::SharedId(_) | Values::OwnId(_) => id(self.name, repetition),
            Values::Ids(_) => {
                let element = Arc::new(id("element", Repetition::REQUIRED)?);
                nested(self.name, LogicalType::List, "list", vec![element])
            }
            Values::Map(_) => {
                let [key, value] = ["key", "value"].map(|name| text(name, Repetition::REQUIRED));
                let entry = vec![Arc::new(key?), Arc::new(value?)];
                nested(self.name, LogicalType::Map, "key_value", entry)
            }
        };
        schema.map(Arc::new)
    }

    fn write(&self, context: &Context, rows: &[R], group: &mut Group<'_>) -> Result<()> {
        let mut out = Out {
            rows,
            is_nullable: self.is_nullable,
            group,
        };
        match self.values {
            Values::Int32(get) => out.scalars::<Int32Type>(&|row| get(context, row)),
            Values::Int64(get) | Values::Rising(get) => {
                out.scalars::<Int64Type>(&|row| get(context, row))
            }
            Values::Double(get) => out.scalars::<DoubleType>(&|row| get(context, row)),
            Values::Bool(get) => out.scalars::<BoolType>(&|row| get(context, row)),
            Values::Text(get) => out.scalars::<ByteArrayType>(&|row| get(context, row)),
            Values::SharedId(get) | Values::OwnId(get) => {
                out.scalars::<FixedLenByteArrayType>(&|row| get(context, row))
            }
            Values::Ids(get) => out.lists::<FixedLenByteArrayType>(&|row| get(context, row)),
            Values::Map(get) => {
                let keys = |row: &R| get(context, row).into_iter().map(|(key, _)| key).collect();
                out.lists::<ByteArrayType>(&keys)?;
                let values = |row: &R| get(context, row).into_iter().map(|(_, value)| value);
                out.lists::<ByteArrayType>(&|row| values(row).collect())
            }
        }
    }
}

fn text(name: &str, repetition: Repetition) -> Result<Type> {
    Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
        .with_logical_type(Some(LogicalType::String))
        .with_repetition(repetition)
        .build()
}

/// What has any number of entries, in the three levels that Parquet asks for.
fn nested(name: &str, logical: LogicalType, entries: &str, fields: Vec<TypePtr>) -> Result<Type> {
    let entries = Type::group_type_builder(entries)
        .with_repetition(Repetition::REPEATED)
        .with_fields(fields)
        .build()?;
    Type::group_type_builder(name)
        .with_logical_type(Some(logical))
        .with_repetition(Repetition::REQUIRED)
        .with_fields(vec![Arc::new(entries)])
        .build()
}

/// Where the values of one column of some rows go.
struct Out<'o, 'w, R> {
    rows: &'o [R],
    is_nullable: bool,
    group: &'o mut Group<'w>,
}

impl<R> Out<'_, '_, R> {
    fn next(&mut self) -> Result<SerializedColumnWriter<'_>> {
        let next = self.group.next_column()?;
        next.ok_or_else(|| ParquetError::General("a column too many".to_owned()))
    }

    fn scalars<T: DataType>(&mut self, get: &dyn Fn(&R) -> Option<T::T>) -> Result<()> {
        let (rows, is_nullable) = (self.rows, self.is_nullable);
        let mut column = self.next()?;
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        for batch in rows.chunks(BATCH) {
            values.clear();
            levels.clear();
            for row in batch {
                let value = get(row);
                levels.push(i16::from(value.is_some()));
                match value {
                    Some(value) => values.push(value),
                    None if is_nullable => {}
                    None => values.push(T::T::default()),
                }
            }
            let levels = is_nullable.then_some(&levels[..]);
            column.typed::<T>().write_batch(&values, levels, None)?;
        }
        column.close()
    }

    fn lists<T: DataType>(&mut self, get: &dyn Fn(&R) -> Vec<T::T>) -> Result<()> {
        let rows = self.rows;
        let mut column = self.next()?;
        let (mut values, mut levels, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for batch in rows.chunks(BATCH) {
            values.clear();
            levels.clear();
            repeated.clear();
            for row in batch {
                let list = get(row);
                levels.extend(list.iter().map(|_| 1));
                repeated.extend((0..list.len()).map(|index| i16::from(index > 0)));
                if list.is_empty() {
                    levels.push(0);
                    repeated.push(0);
                }
                values.extend(list);
            }
            let (levels, repeated) = (Some(&levels[..]), Some(&repeated[..]));
            column.typed::<T>().write_batch(&values, levels, repeated)?;
        }
        column.close()
    }
}
