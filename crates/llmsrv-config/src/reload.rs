//! Settings that are read again while the program runs.

use crate::{Change, Folders, Loaded, Section, ServerConfig, Setting, Status, values::Values};

/// What became of settings that were read again.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Those with a new value.
    pub applied: Vec<&'static Setting>,
    /// Those whose new value counts from the next start.
    pub waiting: Vec<&'static Setting>,
}

impl Loaded {
    /// Takes up the settings of the server that `fresh` has another value for, as far as a running
    /// server can; the others keep their value.
    pub fn take_up(&mut self, fresh: Loaded, folders: &Folders) -> Changes {
        let mut changes = Changes::default();
        for (row, new) in self.settings.iter_mut().zip(fresh.settings) {
            let setting = row.setting;
            if setting.section != Section::Server || row.value == new.value {
                continue;
            }
            match (setting.status, setting.change) {
                (Status::Active, Change::Reload) => {
                    *row = new;
                    changes.applied.push(setting);
                }
                (Status::Active, Change::Restart) => changes.waiting.push(setting),
                (Status::Ignored(_), _) => {}
            }
        }
        self.config.server = ServerConfig::read(&Values(&self.settings), folders);
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Inputs, TextFile, load};

    fn inputs(text: &str) -> Inputs {
        Inputs {
            file: Some(TextFile {
                path: "config.toml".into(),
                text: text.into(),
            }),
            ..Inputs::default()
        }
    }

    #[test]
    fn live_settings_change_and_the_others_wait() {
        let before = "[server]\nkeep_alive = \"1m\"\nhost = \"127.0.0.1:1\"\norigins = [\"a\"]\n";
        let after =
            "[server]\nkeep_alive = \"2m\"\nhost = \"127.0.0.1:2\"\nflash_attention = false\n";
        let mut loaded = load(&inputs(before)).unwrap();
        let names = |settings: &[&Setting]| -> Vec<&str> {
            settings.iter().map(|setting| setting.name).collect()
        };
        // A second time the same is told: what waits still waits.
        for applied in [&["LLMSRV_ORIGINS", "LLMSRV_KEEP_ALIVE"][..], &[]] {
            let fresh = inputs(after);
            let changes = loaded.take_up(load(&fresh).unwrap(), &fresh.folders);
            assert_eq!(names(&changes.applied), applied);
            assert_eq!(names(&changes.waiting), ["LLMSRV_HOST"]);
            let server = &loaded.config.server;
            assert_eq!(server.keep_alive, Some(Duration::from_mins(2)));
            assert_eq!(server.host.port, 1);
            assert!(server.origins.is_empty());
        }
    }
}
