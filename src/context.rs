//! What every command starts from: the settings, loaded once.

use llmsrv_config::{
    Config, Errors, Flag, Folders, Inputs, Loaded, Network, Origin, Request, SETTINGS,
    ServerConfig, Setting, nearest,
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
    /// Whether the server is opened to other machines.
    network: Network,
}

impl Context {
    /// Loads the settings; `flags` are those of the command itself. Warnings are printed.
    pub fn load(global: GlobalArgs, flags: Vec<Flag>) -> Result<Context, Failure> {
        Context::load_for(global, flags, Network::AsSet)
    }

    /// As [`Context::load`], for what starts a server that may be opened to other machines.
    pub fn load_for(
        global: GlobalArgs,
        flags: Vec<Flag>,
        network: Network,
    ) -> Result<Context, Failure> {
        let (loaded, _) = load(&global, &flags, network)?;
        if !global.quiet {
            loaded.warnings.iter().for_each(term::warning);
        }
        Ok(Context {
            global,
            loaded,
            flags,
            network,
        })
    }

    /// Reads the settings again, as they would be if the program was started now.
    pub fn read_again(&self) -> Result<(Loaded, Folders), Failure> {
        load(&self.global, &self.flags, self.network)
    }

    /// Tells whether somebody has set something.
    pub fn is_set(&self, name: &str) -> bool {
        self.origin(name) != Some(&Origin::Default)
    }

    /// Tells whether the command line names the server: then no other one takes its place.
    pub fn names_server(&self) -> bool {
        matches!(self.origin("LLMSRV_HOST"), Some(Origin::Flag { .. }))
    }

    fn origin(&self, name: &str) -> Option<&Origin> {
        let mut settings = self.loaded.settings.iter();
        let row = settings.find(|it| it.setting.name == name)?;
        Some(&row.origin)
    }

    /// Returns the typed settings.
    pub fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// Returns how many threads compute: as many as are set, else one for each processor.
    pub fn threads(&self) -> usize {
        threads(&self.config().server)
    }
}

/// Threads that compute.
pub fn threads(config: &ServerConfig) -> usize {
    match config.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

fn load(
    global: &GlobalArgs,
    flags: &[Flag],
    network: Network,
) -> Result<(Loaded, Folders), Failure> {
    let mut request = request(global)?;
    request.flags.extend(flags.iter().cloned());
    request.network = network;
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
            return Err(Failure::usage(format!("--set {assignment} has no value"))
                .hint(format!("write `--set {key}=VALUE`")));
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
        network: Network::AsSet,
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
    Failure::usage(format!("--set {key}: there is no such setting")).hint(hint)
}

fn settings_failure(errors: Errors) -> Failure {
    let code = if errors.0.iter().all(llmsrv_config::Error::is_usage) {
        Code::Usage
    } else {
        Code::Config
    };
    let unreadable =
        |error: &llmsrv_config::Error| matches!(error, llmsrv_config::Error::Unreadable { .. });
    let of_environment = |error: &llmsrv_config::Error| {
        let llmsrv_config::Error::BadValue { origin, .. } = error else {
            return false;
        };
        matches!(origin, llmsrv_config::Origin::Environment { .. })
    };
    let hint = match code {
        Code::Usage => "`llmsrv config` lists all settings",
        _ if errors.0.iter().all(of_environment) => {
            "unset the variable for the default; `llmsrv config` lists all settings"
        }
        _ if errors.0.iter().all(unreadable) => {
            "a file that --config, --env-file, LLMSRV_CONFIG or LOGKIT_ENV_FILE names must be readable"
        }
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
