//! The settings of the logger, and the database meant when none is named.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use llmsrv_config::{Inputs, LogkitConfig, Request};
use logkit::{
    Level,
    query::{Filter, Reader},
};

use crate::{
    args::{DatabaseArgs, FilterArgs},
    failure::Failure,
    render,
};

/// The settings of this invocation.
pub(crate) struct Settings {
    /// Those of the logger.
    pub(crate) logkit: LogkitConfig,
    /// Variables of the file that `--env-file` names, for a command: those the environment lacks.
    pub(crate) variables: Vec<(String, OsString)>,
}

impl Settings {
    /// Loads them; warnings are printed.
    pub(crate) fn load(env_file: Option<PathBuf>) -> Result<Settings, Failure> {
        let inputs = Inputs::from_process(Request {
            env_file,
            ..Request::default()
        })?;
        let loaded = llmsrv_config::load(&inputs)?;
        for warning in &loaded.warnings {
            render::warning(warning);
        }
        Ok(Settings {
            logkit: loaded.config.logkit,
            variables: inputs.missing_variables(),
        })
    }

    /// Loads them where a mistake in them must not matter: it is said, and the defaults count.
    pub(crate) fn load_or_default() -> Result<Settings, Failure> {
        Settings::load(None).or_else(|failure| {
            render::warning(format_args!("the settings are ignored: {failure}"));
            let loaded = llmsrv_config::load(&Inputs::default())?;
            Ok(Settings {
                logkit: loaded.config.logkit,
                variables: Vec::new(),
            })
        })
    }
}

/// The database that is read.
pub(crate) struct Database {
    pub(crate) path: PathBuf,
    pub(crate) table: String,
}

impl Database {
    /// Finds it; it exists.
    pub(crate) fn find(args: &DatabaseArgs) -> Result<Database, Failure> {
        let path = match &args.db {
            Some(path) => path.clone(),
            None => Settings::load(None)?.logkit.db,
        };
        // People write it as they write a sink.
        let path = match path.to_str().and_then(|text| text.strip_prefix("db:")) {
            Some(plain) if !path.exists() => PathBuf::from(plain),
            _ => path,
        };
        if !Path::new(&path).exists() {
            return Err(Failure::NoDatabase(path));
        }
        Ok(Database {
            path,
            table: args.table.clone(),
        })
    }

    /// Opens it for reading.
    pub(crate) fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::open(&self.path, &self.table)?)
    }

    /// Opens it for reading what the filter asks for. Where words are, their index is made ready;
    /// without it the search is slower.
    pub(crate) fn reader_for(&self, filter: &FilterArgs) -> Result<Reader, Failure> {
        let mut reader = self.reader()?;
        // Programs may have levels of their own; a level that no entry has is a typing error.
        if let Some(name) = &filter.level
            && let level @ Level::Other(_) = Level::parse(name)
            && reader.count(&Filter {
                level: Some(level),
                ..Filter::default()
            })? == 0
        {
            return Err(Failure::Usage(format!(
                "no entry has the level '{name}'; levels are DEBUG, INFO, WARNING (or warn), ERROR and CRITICAL"
            )));
        }
        if filter.search.is_some()
            && let Err(error) = reader.index_words()
        {
            render::warning(format_args!("searching without an index: {error}"));
        }
        Ok(reader)
    }
}
