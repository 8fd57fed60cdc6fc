//! What every command starts from: the settings, loaded once.

use llmsrv_config::{
    Config, Errors, Flag, Folders, Inputs, Loaded, Origin, Request, SETTINGS, Setting, nearest,
};

use crate::{
    cli::GlobalArgs,
    failure::{Code, Failure},
    term,
};

/// Settings and global options of this invocation.
pub struct Context {
    /// Options of every command.
    pub global: GlobalArgs,
    /// The settings and where each came from.
    pub loaded: Loaded,
    /// Flags of the command itself.
    flags: Vec<Flag>,
}

impl Context {
    /// Loads the settings; `flags` are those of the command itself. Warnings are printed.
    pub fn load(global: GlobalArgs, flags: Vec<Flag>) -> Result<Context, Failure> {
        let (loaded, _) = load(&global, &flags)?;
        if !global.quiet {
            loaded.warnings.iter().for_each(term::warning);
        }
        Ok(Context {
            global,
            loaded,
            flags,
        })
    }

    /// Reads the settings again, as they would be if the program was started now.
    pub fn read_again(&self) -> Result<(Loaded, Folders), Failure> {
        load(&self.global, &self.flags)
    }

    /// Tells whether somebody has set something; a port alone sets no address.
    pub fn is_set(&self, name: &str) -> bool {
        let global = GlobalArgs {
            port: None,
            ..self.global.clone()
        };
        let Ok((loaded, _)) = load(&global, &self.flags) else {
            return true;
        };
        let mut settings = loaded.settings.iter();
        settings.any(|it| it.setting.name == name && it.origin != Origin::Default)
    }

    /// Returns the typed settings.
    pub fn config(&self) -> &Config {
        &self.loaded.config
    }
}

fn load(global: &GlobalArgs, flags: &[Flag]) -> Result<(Loaded, Folders), Failure> {
    let mut request = request(global)?;
    request.flags.extend(flags.iter().cloned());
    let inputs = Inputs::from_process(request).map_err(settings_failure)?;
    let loaded = llmsrv_config::load(&inputs).map_err(settings_failure)?;
    Ok((loaded, inputs.folders))
}

/// Turns the global options into settings.
pub fn request(global: &GlobalArgs) -> Result<Request, Failure> {
    let mut flags = Vec::new();
    for assignment in &global.set {
        let (key, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        let setting = find(key.trim()).ok_or_else(|| unknown(key))?;
        if !assignment.contains('=') {
            return Err(
                Failure::new(Code::Usage, format!("--set {assignment} has no value"))
                    .hint(format!("write `--set {key}=VALUE`")),
            );
        }
        flags.push(Flag {
            setting: setting.name,
            flag: "--set",
            value: value.to_owned(),
        });
    }
    let mut flag = |setting, flag, value: Option<String>| {
        flags.extend(value.map(|value| Flag {
            setting,
            flag,
            value,
        }));
    };
    flag("LLMSRV_HOST", "--host", global.host.clone());
    flag("LLMSRV_MODELS", "--models", global.models.clone());
    flag(
        "LLMSRV_DEBUG",
        "-v",
        (global.more > 0).then(|| global.more.min(2).to_string()),
    );
    flag(
        "LLMSRV_LOG",
        "--quiet",
        global.quiet.then(|| "error".to_owned()),
    );
    Ok(Request {
        config_file: global.config.clone(),
        env_file: global.env_file.clone(),
        flags,
        port: global.port,
    })
}

/// Finds a setting by its key in the settings file or by its variable.
fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.path().as_deref() == Some(key) || setting.name == key)
}

fn unknown(key: &str) -> Failure {
    let keys: Vec<String> = SETTINGS.iter().filter_map(Setting::path).collect();
    let hint = match nearest(key, keys.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`llmsrv config` lists all settings".to_owned(),
    };
    Failure::new(
        Code::Usage,
        format!("--set {key}: there is no such setting"),
    )
    .hint(hint)
}

fn settings_failure(errors: Errors) -> Failure {
    let code = if errors.0.iter().all(llmsrv_config::Error::is_usage) {
        Code::Usage
    } else {
        Code::Config
    };
    let hint = match code {
        Code::Usage => "`llmsrv config` lists all settings",
        _ => "`llmsrv config path` prints where the settings file is",
    };
    let message = match errors.0.as_slice() {
        [error] => error.to_string(),
        several => {
            let lines: Vec<String> = several.iter().map(|error| format!("\n  {error}")).collect();
            format!(
                "the settings have {} mistakes:{}",
                lines.len(),
                lines.concat()
            )
        }
    };
    Failure::new(code, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(assignment: &str) -> Result<Vec<Flag>, Failure> {
        request(&GlobalArgs {
            set: vec![assignment.into()],
            ..GlobalArgs::default()
        })
        .map(|request| request.flags)
    }

    #[test]
    fn settings_are_set_by_key_or_variable() {
        for assignment in ["server.keep_alive=1h", "LLMSRV_KEEP_ALIVE=1h"] {
            let flags = set(assignment).unwrap();
            assert_eq!(
                (flags[0].setting, flags[0].value.as_str()),
                ("LLMSRV_KEEP_ALIVE", "1h")
            );
        }
        let failure = set("server.keepalive=1h").unwrap_err();
        assert_eq!(
            (failure.code, failure.hint.as_deref()),
            (Code::Usage, Some("did you mean `server.keep_alive`?"))
        );
        assert_eq!(set("server.keep_alive").unwrap_err().code, Code::Usage);
    }

    #[test]
    fn every_global_option_names_a_setting() {
        let global = GlobalArgs {
            host: Some("h".into()),
            models: Some("m".into()),
            more: 3,
            quiet: true,
            ..GlobalArgs::default()
        };
        let flags = request(&global).unwrap().flags;
        assert_eq!(flags.len(), 4);
        assert!(
            flags
                .iter()
                .all(|flag| Setting::find(flag.setting).is_some())
        );
    }
}
