//! What the loader looks at, and collecting it from the process.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Error, Errors, Folders, env_file};

/// Everything the loader looks at.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Settings given on the command line.
    pub flags: Vec<Flag>,
    /// Port given on the command line: replaces the one of the address.
    pub port: Option<u16>,
    /// Whether the server is opened to other machines.
    pub network: Network,
    /// The environment.
    pub environment: BTreeMap<String, OsString>,
    /// A file of `NAME=value` lines.
    pub env_file: Option<TextFile>,
    /// The settings file.
    pub file: Option<TextFile>,
    /// Where the program's files live.
    pub folders: Folders,
}

/// Whether a server that would listen for this machine alone is opened to the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// It listens at the address of the settings.
    #[default]
    AsSet,
    /// It listens on all interfaces, unless somebody has set an address.
    UnlessSet,
    /// It listens on all interfaces; a loopback address in a flag contradicts that.
    Open,
}

/// A setting given on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// Name of the setting in the table.
    pub setting: &'static str,
    /// How the flag is written, for messages.
    pub flag: &'static str,
    /// Its value.
    pub value: String,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it holds.
    pub text: String,
}

impl TextFile {
    /// Returns the line of a byte, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        1 + self
            .text
            .bytes()
            .take(at)
            .filter(|byte| *byte == b'\n')
            .count()
    }
}

impl TextFile {
    /// Reads the file at `path`.
    pub fn read(path: PathBuf) -> Result<TextFile, Error> {
        match fs::read_to_string(&path) {
            Ok(text) => Ok(TextFile { path, text }),
            Err(source) => Err(Error::Unreadable { path, source }),
        }
    }
}

/// What the command line says about loading.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A settings file that must exist.
    pub config_file: Option<PathBuf>,
    /// An environment file that must exist.
    pub env_file: Option<PathBuf>,
    /// Settings.
    pub flags: Vec<Flag>,
    /// Port of the server.
    pub port: Option<u16>,
    /// Whether the server is opened to other machines.
    pub network: Network,
}

impl Request {
    /// Returns where the settings file is, or would be.
    pub fn settings_file(&self) -> PathBuf {
        settings_file(self, &process_environment(), &Folders::from_process()).0
    }
}

impl Inputs {
    /// Collects the inputs of this process: environment, folders and files.
    pub fn from_process(request: Request) -> Result<Inputs, Errors> {
        Inputs::collect(request, process_environment(), Folders::from_process())
    }

    /// Returns the variables of the environment file that the environment does not have: what a
    /// command that is run for the user gets besides.
    pub fn missing_variables(&self) -> Vec<(String, OsString)> {
        let Some(file) = &self.env_file else {
            return Vec::new();
        };
        let mut missing: BTreeMap<String, OsString> = BTreeMap::new();
        for assignment in env_file::parse(&file.text).0 {
            if !self.environment.contains_key(&assignment.name) {
                missing.insert(assignment.name, assignment.value.into());
            }
        }
        missing.into_iter().collect()
    }

    fn collect(
        request: Request,
        environment: BTreeMap<String, OsString>,
        folders: Folders,
    ) -> Result<Inputs, Errors> {
        let (path, must_exist) = settings_file(&request, &environment, &folders);
        let env_file = request
            .env_file
            .or_else(|| named(&environment, &folders, "LOGKIT_ENV_FILE"));
        let mut errors = Vec::new();
        let mut read = |path: PathBuf| {
            TextFile::read(path)
                .map_err(|error| errors.push(error))
                .ok()
        };
        let env_file = env_file.and_then(&mut read);
        let file = if must_exist || !is_absent(&path) {
            read(path)
        } else {
            None
        };
        if errors.is_empty() {
            Ok(Inputs {
                flags: request.flags,
                port: request.port,
                network: request.network,
                environment,
                env_file,
                file,
                folders,
            })
        } else {
            Err(Errors(errors))
        }
    }
}

/// Returns the folders in which the system looks for commands, as `PATH` has them.
pub fn search_path() -> Option<OsString> {
    std::env::var_os("PATH")
}

/// Returns the user who called `sudo`, if root is not that user.
pub fn sudo_user() -> Option<String> {
    let name = std::env::var("SUDO_USER").ok()?;
    (!name.is_empty() && name != "root").then_some(name)
}

/// Tells whether the user has named a program that asks for passwords where there is no terminal.
pub fn has_ask_program() -> bool {
    std::env::var_os("SSH_ASKPASS").is_some_and(|program| !program.is_empty())
}

/// Returns the editor that the user has named (a command, maybe with options), or `vi`.
pub fn editor() -> OsString {
    ["VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(std::env::var_os)
        .find(|command| !command.is_empty())
        .unwrap_or_else(|| "vi".into())
}

fn process_environment() -> BTreeMap<String, OsString> {
    // Names that are not UTF-8 cannot be ours.
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .collect()
}

/// Finds the settings file; also tells whether somebody named it, so that it must exist.
fn settings_file(
    request: &Request,
    environment: &BTreeMap<String, OsString>,
    folders: &Folders,
) -> (PathBuf, bool) {
    if let Some(path) = request
        .config_file
        .clone()
        .or_else(|| named(environment, folders, "LLMSRV_CONFIG"))
    {
        return (path, true);
    }
    let of_user = folders.config.join("config.toml");
    let of_machine = PathBuf::from("/etc/llmsrv/config.toml");
    let path = if is_absent(&of_user) && !is_absent(&of_machine) {
        of_machine
    } else {
        of_user
    };
    (path, false)
}

/// Returns the path a variable holds.
fn named(
    environment: &BTreeMap<String, OsString>,
    folders: &Folders,
    variable: &str,
) -> Option<PathBuf> {
    let value = environment
        .get(variable)
        .filter(|value| !value.is_empty())?;
    Some(
        value
            .to_str()
            .map_or_else(|| PathBuf::from(value), |text| folders.expand(text)),
    )
}

/// Tells that nothing is there; a file that cannot be looked at is there.
fn is_absent(path: &Path) -> bool {
    let missing = |error: io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    };
    fs::metadata(path).is_err_and(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;

    #[test]
    fn files_that_were_asked_for_must_exist_and_others_need_not() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders {
            config: dir.path().join("none"),
            ..Folders::none()
        };
        let request = Request {
            config_file: Some(dir.path().join("x.toml")),
            ..Request::default()
        };
        let Errors(errors) =
            Inputs::collect(request, BTreeMap::new(), folders.clone()).unwrap_err();
        assert!(errors[0].to_string().contains("x.toml"));
        assert!(
            Inputs::collect(Request::default(), BTreeMap::new(), folders.clone())
                .unwrap()
                .file
                .is_none()
        );

        let named = dir.path().join("named.toml");
        fs::write(&named, "[server]\n").unwrap();
        let environment =
            BTreeMap::from([("LLMSRV_CONFIG".to_owned(), named.clone().into_os_string())]);
        let inputs = Inputs::collect(Request::default(), environment, folders).unwrap();
        assert_eq!(load(&inputs).unwrap().file, Some(named));
    }
}
