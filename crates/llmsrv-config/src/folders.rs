//! Where files of the program live: the XDG folders of the user.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

/// The folders, each already with the program's own name where one belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// The user's home.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME/llmsrv`
    pub config: PathBuf,
    /// `$XDG_DATA_HOME/llmsrv`
    pub data: PathBuf,
    /// `$XDG_STATE_HOME/llmsrv`
    pub state: PathBuf,
    /// `$XDG_CACHE_HOME/llmsrv`: what may be removed at any time.
    pub cache: PathBuf,
    /// `$XDG_RUNTIME_DIR/llmsrv`
    pub runtime: PathBuf,
    /// A store of the existing server, if this machine has one.
    pub existing_store: Option<PathBuf>,
}

/// Placeholders in the defaults of the table, and what the documents say for them.
pub(crate) const PLACEHOLDERS: &[(&str, &str)] = &[
    ("{config}", "$XDG_CONFIG_HOME/llmsrv"),
    ("{data}", "$XDG_DATA_HOME/llmsrv"),
    ("{state}", "$XDG_STATE_HOME/llmsrv"),
    ("{runtime}", "$XDG_RUNTIME_DIR/llmsrv"),
];

impl Folders {
    /// Looks the folders up. Without a home directory (a system service) they are below `/var/lib`.
    pub fn from_process() -> Folders {
        let Ok(xdg) = etcetera::choose_base_strategy() else {
            let base = PathBuf::from("/var/lib/llmsrv");
            return Folders {
                home: None,
                config: "/etc/llmsrv".into(),
                data: base.clone(),
                state: base.join("state"),
                cache: base.join("cache"),
                runtime: "/run/llmsrv".into(),
                existing_store: existing(&[Path::new("/usr/share/ollama/.ollama/models")]),
            };
        };
        let home = xdg.home_dir().to_path_buf();
        let state = xdg
            .state_dir()
            .unwrap_or_else(|| xdg.data_dir())
            .join("llmsrv");
        Folders {
            config: xdg.config_dir().join("llmsrv"),
            data: xdg.data_dir().join("llmsrv"),
            cache: xdg.cache_dir().join("llmsrv"),
            runtime: xdg
                .runtime_dir()
                .map_or_else(|| state.join("run"), |dir| dir.join("llmsrv")),
            state,
            existing_store: existing(&[
                &home.join(".ollama/models"),
                Path::new("/usr/share/ollama/.ollama/models"),
            ]),
            home: Some(home),
        }
    }

    /// No folders at all; paths stay as they are written.
    pub fn none() -> Folders {
        Folders::default()
    }

    /// Replaces a leading `~` or placeholder.
    pub fn expand(&self, text: &str) -> PathBuf {
        let folders = [&self.config, &self.data, &self.state, &self.runtime];
        let named = PLACEHOLDERS
            .iter()
            .map(|(placeholder, _)| *placeholder)
            .zip(folders);
        for (name, folder) in self.home.iter().map(|home| ("~", home)).chain(named) {
            match text.strip_prefix(name) {
                Some("") => return folder.clone(),
                Some(rest) if rest.starts_with('/') => {
                    return folder.join(rest.trim_start_matches('/'));
                }
                _ => {}
            }
        }
        PathBuf::from(text)
    }
}

fn existing(candidates: &[&Path]) -> Option<PathBuf> {
    candidates
        .iter()
        .find(|path| path.join("manifests").is_dir())
        .map(|path| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_and_placeholders_are_expanded_at_the_start_only() {
        let folders = Folders {
            home: Some("/home/ann".into()),
            data: "/d".into(),
            ..Folders::none()
        };
        for (text, path) in [
            ("~/models", "/home/ann/models"),
            ("~", "/home/ann"),
            ("~bob/models", "~bob/models"),
            ("{data}/models", "/d/models"),
            ("{data}", "/d"),
            ("/a/~/b", "/a/~/b"),
            ("relative", "relative"),
        ] {
            assert_eq!(folders.expand(text).as_os_str(), path, "{text}");
        }
    }
}
