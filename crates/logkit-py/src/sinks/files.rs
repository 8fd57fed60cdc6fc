//! Sinks that write to files.

use std::path::{Path, PathBuf};

use logkit::{JsonForm, SinkError};
use pyo3::{exceptions::PyValueError, prelude::*};

use super::{
    arguments as given,
    handle::{Made, Traits},
    native::{Draft, NativeSink},
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<DbSink>()?;
    module.add_class::<CsvSink>()?;
    module.add_class::<MarkdownSink>()?;
    module.add_class::<JsonSink>()
}

/// Writes entries to a table of an SQLite database, which others may read meanwhile.
///
/// The database is made or opened at once: an `OSError` says that it cannot be. A table of the
/// reference, or of an older version, gets the columns that it lacks.
///
/// - `durability`: `"buffered"` (within 50 ms), `"crash"` (a killed process loses nothing), `"sync"`
///   (committed before the call returns) or `"full"` (on the disk before the call returns); a logger
///   with this sink takes it over unless it has one of its own.
/// - `retain`: rows older than that are deleted, `"30d"` or a timedelta.
/// - `max_rows`: only the newest rows are kept.
#[pyclass(name = "DbSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct DbSink {
    /// The database.
    #[pyo3(get)]
    pub(super) db_path: PathBuf,
    /// The table.
    #[pyo3(get)]
    pub(super) table: String,
}

#[pymethods]
impl DbSink {
    #[new]
    #[pyo3(signature = (db_path = PathBuf::from("logs.db"), table = "logs".to_owned(), *, delegate = None, durability = None, retain = None, max_rows = None))]
    fn new(
        py: Python<'_>,
        db_path: PathBuf,
        table: String,
        delegate: Option<Bound<'_, PyAny>>,
        durability: Option<&str>,
        retain: Option<&Bound<'_, PyAny>>,
        max_rows: Option<i64>,
    ) -> PyResult<PyClassInitializer<DbSink>> {
        let path = given::place(db_path.clone())?;
        let durability = given::durability(durability)?;
        let retain = given::age(retain)?;
        let max_rows = max_rows
            .map(|rows| given::at_least("max_rows", 1, rows))
            .transpose()?;
        let traits = Traits {
            database: Some(path.clone()),
            file: Some(path.clone()),
            durability,
            ..Traits::default()
        };
        let name = table.clone();
        let (traits, recipe) = given::with_delegate(
            traits,
            given::delegate(delegate.as_ref())?.as_ref(),
            move |_| {
                let sink = logkit::DbSink::open(&path, &name, durability.unwrap_or_default())?;
                Ok(Made::new(sink.retain(retain, max_rows)))
            },
        );
        let draft = Draft {
            name: "db",
            about: format!(
                "{}, {}",
                given::quoted(&db_path),
                logkit::repr::repr_str(&table)
            ),
            delegate,
            traits,
            recipe,
            is_eager: true,
        };
        draft.make(py, DbSink { db_path, table })
    }
}

/// Writes rows of comma-separated values (RFC 4180).
///
/// The file is made or opened at once: an `OSError` says that it cannot be. It is put aside before it
/// would grow beyond `max_bytes`, or with `daily` at the first entry of a new day (UTC); `backups` files
/// put aside are kept, compressed with `compress="zstd"`. Every entry goes to `delegate` too.
/// With `safe_formulas` cells that a spreadsheet would take for a formula begin with `'`.
#[pyclass(name = "CSVSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct CsvSink {
    /// The file.
    #[pyo3(get)]
    pub(super) file_path: PathBuf,
}

#[pymethods]
impl CsvSink {
    #[new]
    #[pyo3(signature = (file_path = PathBuf::from("logs.csv"), delegate = None, *, safe_formulas = false, max_bytes = None, backups = None, daily = false, compress = None))]
    fn new(
        py: Python<'_>,
        file_path: PathBuf,
        delegate: Option<Bound<'_, PyAny>>,
        safe_formulas: bool,
        max_bytes: Option<&Bound<'_, PyAny>>,
        backups: Option<i64>,
        daily: bool,
        compress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<CsvSink>> {
        let rotation = given::rotation(max_bytes, backups, daily, compress)?;
        let open = move |path: &PathBuf| {
            let sink = logkit::CsvSink::open(path, rotation)?;
            Ok(Made::new(sink.safe_formulas(safe_formulas)))
        };
        file("csv", &file_path, delegate, open)?.make(py, CsvSink { file_path })
    }
}

/// Writes entries as Markdown, for reading.
///
/// The file is made or opened at once: an `OSError` says that it cannot be. It is put aside before it
/// would grow beyond `max_bytes`, or with `daily` at the first entry of a new day (UTC); `backups` files
/// put aside are kept, compressed with `compress="zstd"`. Every entry goes to `delegate` too.
#[pyclass(name = "MarkdownSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct MarkdownSink {
    /// The file.
    #[pyo3(get)]
    pub(super) file_path: PathBuf,
}

#[pymethods]
impl MarkdownSink {
    #[new]
    #[pyo3(signature = (file_path = PathBuf::from("logs.md"), delegate = None, *, max_bytes = None, backups = None, daily = false, compress = None))]
    fn new(
        py: Python<'_>,
        file_path: PathBuf,
        delegate: Option<Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
        backups: Option<i64>,
        daily: bool,
        compress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<MarkdownSink>> {
        let rotation = given::rotation(max_bytes, backups, daily, compress)?;
        let open = move |path: &PathBuf| Ok(Made::new(logkit::MarkdownSink::open(path, rotation)?));
        file("md", &file_path, delegate, open)?.make(py, MarkdownSink { file_path })
    }
}

/// Writes JSON objects, one line each.
///
/// The file is made or opened at once: an `OSError` says that it cannot be. It is put aside before it
/// would grow beyond `max_bytes`, or with `daily` at the first entry of a new day (UTC); `backups` files
/// put aside are kept, compressed with `compress="zstd"`. Every entry goes to `delegate` too.
/// `pretty` writes several indented lines, `compact` short keys without what is empty, `typed` arguments
/// and results as JSON values where they have one.
#[pyclass(name = "JSONSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct JsonSink {
    /// The file.
    #[pyo3(get)]
    pub(super) file_path: PathBuf,
}

#[pymethods]
impl JsonSink {
    #[new]
    #[pyo3(signature = (file_path = PathBuf::from("logs.jsonl"), pretty = false, delegate = None, compact = false, *, typed = false, max_bytes = None, backups = None, daily = false, compress = None))]
    fn new(
        py: Python<'_>,
        file_path: PathBuf,
        pretty: bool,
        delegate: Option<Bound<'_, PyAny>>,
        compact: bool,
        typed: bool,
        max_bytes: Option<&Bound<'_, PyAny>>,
        backups: Option<i64>,
        daily: bool,
        compress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<JsonSink>> {
        let rotation = given::rotation(max_bytes, backups, daily, compress)?;
        let form = match (pretty, compact, typed) {
            (false, false, false) => JsonForm::Lines,
            (true, false, false) => JsonForm::Pretty,
            (false, true, false) => JsonForm::Compact,
            (false, false, true) => JsonForm::Typed,
            _ => {
                return Err(PyValueError::new_err(
                    "only one of pretty, compact and typed can be chosen",
                ));
            }
        };
        let open =
            move |path: &PathBuf| Ok(Made::new(logkit::JsonSink::open(path, form, rotation)?));
        file("json", &file_path, delegate, open)?.make(py, JsonSink { file_path })
    }
}

/// A sink that appends to a file.
fn file<'py>(
    name: &'static str,
    path: &Path,
    delegate: Option<Bound<'py, PyAny>>,
    open: impl Fn(&PathBuf) -> Result<Made, SinkError> + Send + Sync + 'static,
) -> PyResult<Draft<'py>> {
    let place = given::place(path.to_owned())?;
    let traits = Traits {
        file: Some(place.clone()),
        ..Traits::default()
    };
    let child = given::delegate(delegate.as_ref())?;
    let (traits, recipe) = given::with_delegate(traits, child.as_ref(), move |_| open(&place));
    Ok(Draft {
        name,
        about: given::quoted(path),
        delegate,
        traits,
        recipe,
        is_eager: true,
    })
}
