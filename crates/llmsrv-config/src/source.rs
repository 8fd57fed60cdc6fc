//! Layers: default < file < `.env` file < environment < flag. The strongest one that says something
//! wins, and the loader remembers which it was.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    Ambient, ClientConfig, Config, Error, Errors, Folders, HostConfig, Inputs, LogkitConfig,
    Network, Origin, Resolved, SETTINGS, ServerConfig, Setting, Status, Value, Warning, env_file,
    nearest,
    origin::Entry,
    toml_file, upstream,
    value::{ParseMode, Raw, parse},
    values::Values,
};

/// What [`load`] returns.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings, typed.
    pub config: Config,
    /// The same one by one, in the order of the table.
    pub settings: Vec<Resolved>,
    /// Oddities that do not stop the program.
    pub warnings: Vec<Warning>,
    /// The settings file, if one was read.
    pub file: Option<PathBuf>,
}

/// Lets the strongest layer win for each setting. Reports every mistake of every layer, not only
/// the first one.
pub fn load(inputs: &Inputs) -> Result<Loaded, Errors> {
    let mut errors = Vec::new();
    let mut warnings = Vec::new();

    let mut entries = Vec::new();
    if let Some(file) = &inputs.file {
        entries.extend(toml_file::entries(file, &mut errors));
    }
    let assignments = assignments(inputs, &mut errors, &mut warnings);
    let upstreams = inputs.file.as_ref().map_or_else(Vec::new, |file| {
        upstream::read(file, &plain_environment(inputs, &assignments), &mut errors)
    });
    entries.extend(variables(&assignments));
    entries.extend(environment(inputs, &mut errors, &mut warnings));
    for flag in &inputs.flags {
        if let Some(setting) = Setting::find(flag.setting) {
            let origin = Origin::Flag { flag: flag.flag };
            // One flag for all settings says nothing of which it is.
            let name = match flag.flag {
                "--set" => format!(
                    "--set {}",
                    setting.path().as_deref().unwrap_or(setting.name)
                ),
                flag => flag.to_owned(),
            };
            entries.push(Entry {
                setting,
                name,
                raw: Raw::Text(flag.value.clone()),
                origin,
            });
        }
    }

    let mut settings = defaults(&inputs.folders);
    for entry in entries {
        match parse(
            entry.setting.kind,
            &entry.raw,
            manner(&entry),
            &inputs.folders,
        ) {
            // An empty value says nothing.
            Ok((Value::Unset, _)) => {}
            Ok((value, remark)) => {
                if let Some(remark) = remark {
                    let (origin, name) = (entry.origin.clone(), entry.name);
                    warnings.push(Warning::Replaced {
                        origin,
                        name,
                        remark,
                    });
                }
                if let Some(row) = settings
                    .iter_mut()
                    .find(|row| row.setting.name == entry.setting.name)
                {
                    row.value = value;
                    row.origin = entry.origin;
                }
            }
            Err(problem) => {
                errors.push(Error::BadValue {
                    origin: entry.origin,
                    name: entry.name,
                    problem,
                });
            }
        }
    }
    errors.extend(open_to_network(inputs.network, &mut settings));
    if !errors.is_empty() {
        errors.sort_by_key(Error::position);
        return Err(Errors(errors));
    }
    if let Some(port) = inputs.port
        && let Some(row) = settings
            .iter_mut()
            .find(|row| row.setting.name == "LLMSRV_HOST")
        && let Value::Address(address) = &mut row.value
    {
        address.port = port;
        row.origin = Origin::Flag { flag: "--port" };
    }
    if let (Some(file), Some(row)) = (
        &inputs.file,
        settings
            .iter_mut()
            .find(|row| row.setting.name == "LLMSRV_CONFIG"),
    ) {
        row.value = Value::Path(file.path.clone());
    }

    let usual = defaults(&inputs.folders);
    let rows = settings.iter().zip(&usual);
    warnings.extend(rows.filter_map(|(row, usual)| ignored(row, usual)));

    let values = Values(&settings);
    let config = Config {
        server: ServerConfig::read(&values, &inputs.folders),
        client: ClientConfig::new(&values),
        host: HostConfig::new(&values),
        upstreams,
        logkit: LogkitConfig::new(
            &values,
            Ambient::new(&plain_environment(inputs, &assignments)),
        ),
    };
    Ok(Loaded {
        config,
        settings,
        warnings,
        file: inputs.file.as_ref().map(|file| file.path.clone()),
    })
}

/// Returns the settings as they are where nothing is said.
pub(crate) fn defaults(folders: &Folders) -> Vec<Resolved> {
    let default = |setting: &'static Setting| {
        let text = Raw::Text(setting.default.to_owned());
        let value = parse(setting.kind, &text, ParseMode::Strict, folders);
        Resolved {
            setting,
            value: value.map_or(Value::Unset, |(value, _)| value),
            origin: Origin::Default,
        }
    };
    SETTINGS.iter().map(default).collect()
}

/// Warns of a setting without effect that has another value than its default.
fn ignored(row: &Resolved, usual: &Resolved) -> Option<Warning> {
    let Status::Ignored(why) = row.setting.status else {
        return None;
    };
    (row.value != usual.value).then(|| Warning::Ignored {
        origin: row.origin.clone(),
        name: row.setting.name.to_owned(),
        why,
    })
}

/// Lets the server listen on all interfaces where that is asked for.
fn open_to_network(network: Network, settings: &mut [Resolved]) -> Option<Error> {
    const FLAG: Origin = Origin::Flag { flag: "--network" };
    let mut rows = settings.iter_mut();
    let row = rows.find(|row| row.setting.name == "LLMSRV_HOST")?;
    let Value::Address(address) = &mut row.value else {
        return None;
    };
    let opens = match network {
        Network::AsSet => false,
        Network::UnlessSet => row.origin == Origin::Default,
        Network::Open => address.is_loopback(),
    };
    if opens && matches!(row.origin, Origin::Flag { .. }) {
        return Some(Error::BadValue {
            origin: FLAG,
            name: "--network".to_owned(),
            problem: format!(
                "contradicts {}: {} is for this machine alone",
                row.origin, address.host
            ),
        });
    }
    if opens {
        "0.0.0.0".clone_into(&mut address.host);
        row.origin = FLAG;
    }
    None
}

/// The forgiving rules are those of existing servers for their variables; everything else is new
/// and can be exact.
fn manner(entry: &Entry) -> ParseMode {
    let variable = matches!(
        entry.origin,
        Origin::Environment { .. } | Origin::EnvFile { .. }
    );
    if variable && !entry.name.starts_with("LOGKIT_") {
        ParseMode::Lenient
    } else {
        ParseMode::Strict
    }
}

/// Reads the environment file and looks for names that mean nothing.
fn assignments(
    inputs: &Inputs,
    errors: &mut Vec<Error>,
    warnings: &mut Vec<Warning>,
) -> Vec<(Origin, String, String)> {
    let Some(file) = &inputs.env_file else {
        return Vec::new();
    };
    let (assignments, mistakes) = env_file::parse(&file.text);
    errors.extend(mistakes.into_iter().map(|(line, problem)| Error::Syntax {
        path: file.path.clone(),
        line,
        message: format!("the line {problem}"),
    }));
    let assignments: Vec<(Origin, String, String)> = assignments
        .into_iter()
        .map(|assignment| {
            let (path, name) = (file.path.clone(), assignment.name.clone());
            (
                Origin::EnvFile {
                    path,
                    line: assignment.line,
                    name,
                },
                assignment.name,
                assignment.value,
            )
        })
        .collect();
    warnings.extend(
        assignments
            .iter()
            .filter_map(|(origin, name, _)| unknown(origin, name)),
    );
    assignments
}

/// Entries of the environment file: for each setting its strongest variable; the last line wins.
fn variables(assignments: &[(Origin, String, String)]) -> impl Iterator<Item = Entry> {
    SETTINGS.iter().filter_map(move |setting| {
        setting.variables().find_map(|variable| {
            let (origin, name, value) = assignments
                .iter()
                .rev()
                .find(|(_, name, value)| name == variable && !value.trim().is_empty())?;
            Some(Entry {
                setting,
                name: name.clone(),
                raw: Raw::Text(value.clone()),
                origin: origin.clone(),
            })
        })
    })
}

/// Entries of the environment: for each setting its strongest variable that is not empty.
fn environment(
    inputs: &Inputs,
    errors: &mut Vec<Error>,
    warnings: &mut Vec<Warning>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for setting in SETTINGS {
        for variable in setting.variables() {
            let Some(value) = inputs
                .environment
                .get(variable)
                .filter(|value| !value.is_empty())
            else {
                continue;
            };
            let origin = Origin::Environment {
                name: variable.to_owned(),
            };
            match value.to_str() {
                Some(text) if text.trim().is_empty() => continue,
                Some(text) => {
                    entries.push(Entry {
                        setting,
                        name: variable.to_owned(),
                        raw: Raw::Text(text.to_owned()),
                        origin,
                    });
                }
                None => {
                    let (name, problem) = (variable.to_owned(), "is not valid UTF-8".to_owned());
                    errors.push(Error::BadValue {
                        origin,
                        name,
                        problem,
                    });
                }
            }
            break;
        }
    }
    warnings.extend(
        inputs
            .environment
            .keys()
            .filter_map(|name| unknown(&Origin::Environment { name: name.clone() }, name)),
    );
    entries
}

/// Warns of a name with one of our prefixes that no setting has.
fn unknown(origin: &Origin, name: &str) -> Option<Warning> {
    let ours = name.starts_with("LLMSRV_") || name.starts_with("LOGKIT_");
    if !ours || Setting::find(name).is_some() {
        return None;
    }
    let nearest = nearest(name, SETTINGS.iter().map(|setting| setting.name)).map(str::to_owned);
    Some(Warning::UnknownVariable {
        origin: origin.clone(),
        name: name.to_owned(),
        nearest,
    })
}

/// The environment with the file's lines below it, for what is looked up by name.
fn plain_environment(
    inputs: &Inputs,
    assignments: &[(Origin, String, String)],
) -> BTreeMap<String, String> {
    let mut plain: BTreeMap<String, String> = assignments
        .iter()
        .map(|(_, name, value)| (name.clone(), value.clone()))
        .collect();
    let environment = inputs.environment.iter();
    plain.extend(
        environment.filter_map(|(name, value)| Some((name.clone(), value.to_str()?.to_owned()))),
    );
    plain
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use proptest::prelude::*;

    use super::*;
    use crate::{Flag, TextFile};

    fn inputs(
        file: &str,
        env_file: &str,
        environment: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Inputs {
        let text_file = |path: &str, text: &str| TextFile {
            path: path.into(),
            text: text.into(),
        };
        Inputs {
            flags: flags
                .iter()
                .map(|(setting, value)| Flag {
                    setting,
                    flag: "--flag",
                    value: (*value).into(),
                })
                .collect(),
            port: None,
            network: Network::AsSet,
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).into(), OsString::from(value)))
                .collect(),
            env_file: Some(text_file(".env", env_file)),
            file: Some(text_file("c.toml", file)),
            folders: Folders {
                data: "/data".into(),
                ..Folders::none()
            },
        }
    }

    fn row<'a>(loaded: &'a Loaded, name: &str) -> (String, &'a Origin) {
        let row = loaded
            .settings
            .iter()
            .find(|row| row.setting.name == name)
            .unwrap();
        (row.value.show(), &row.origin)
    }

    #[test]
    fn only_what_is_asked_for_opens_a_server_to_the_network() {
        let host = |network, variable: &str, flag: &str| {
            let variables = [("LLMSRV_HOST", variable)];
            let flags = [("LLMSRV_HOST", flag)];
            let inputs = Inputs {
                network,
                ..inputs(
                    "",
                    "",
                    &variables,
                    if flag.is_empty() { &[] } else { &flags },
                )
            };
            load(&inputs).map(|loaded| loaded.config.server.host.to_string())
        };
        for (network, variable, flag, expected) in [
            (Network::AsSet, "", "", "127.0.0.1:11434"),
            (Network::UnlessSet, "", "", "0.0.0.0:11434"),
            (Network::UnlessSet, "127.0.0.1:1", "", "127.0.0.1:1"),
            (Network::UnlessSet, "10.0.0.7:1", "", "10.0.0.7:1"),
            (Network::Open, "", "", "0.0.0.0:11434"),
            (Network::Open, "localhost:1", "", "0.0.0.0:1"),
            (Network::Open, "10.0.0.7:1", "", "10.0.0.7:1"),
            (Network::Open, "", "10.0.0.7:1", "10.0.0.7:1"),
        ] {
            let seen = host(network, variable, flag).unwrap();
            assert_eq!(seen, expected, "{network:?} {variable} {flag}");
        }
        let contradiction = host(Network::Open, "", "127.0.0.1:1").unwrap_err();
        assert!(contradiction.0.iter().all(Error::is_usage));
        assert!(contradiction.to_string().contains("contradicts"));
    }

    #[test]
    fn without_inputs_the_defaults_hold() {
        let loaded = load(&Inputs {
            folders: Folders {
                data: "/data".into(),
                ..Folders::none()
            },
            ..Inputs::default()
        });
        let loaded = loaded.unwrap();
        let server = &loaded.config.server;
        assert_eq!(server.host.to_string(), "127.0.0.1:11434");
        assert_eq!(server.models, PathBuf::from("/data/models"));
        assert_eq!((server.max_queue, server.num_parallel), (512, 0));
        assert!(loaded.warnings.is_empty());
        assert!(
            loaded
                .settings
                .iter()
                .all(|row| row.origin == Origin::Default)
        );
    }

    #[test]
    fn settings_without_effect_warn_where_they_say_something_else() {
        let warnings = |environment: &[(&str, &str)]| {
            let loaded = load(&inputs("", "", environment, &[])).unwrap();
            let texts = loaded.warnings.iter().map(ToString::to_string);
            texts.collect::<Vec<_>>()
        };
        assert!(warnings(&[("OLLAMA_FLASH_ATTENTION", "1")]).is_empty());
        let told = warnings(&[("OLLAMA_FLASH_ATTENTION", "0")]);
        let [attention] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert!(
            attention.contains("LLMSRV_FLASH_ATTENTION is ignored: "),
            "{attention}"
        );
    }

    #[test]
    fn the_strongest_layer_wins_and_is_remembered() {
        let file = "[server]\nmax_queue = 1\n";
        let none: &[(&str, &str)] = &[];
        for (env_file, environment, flags, value, origin) in [
            ("", none, &[][..], "1", "c.toml:2"),
            (
                "LLMSRV_MAX_QUEUE=2",
                none,
                &[],
                "2",
                ".env:1 LLMSRV_MAX_QUEUE",
            ),
            (
                "LLMSRV_MAX_QUEUE=2",
                &[("OLLAMA_MAX_QUEUE", "3")],
                &[],
                "3",
                "environment OLLAMA_MAX_QUEUE",
            ),
            (
                "",
                &[("OLLAMA_MAX_QUEUE", "3"), ("LLMSRV_MAX_QUEUE", "4")],
                &[],
                "4",
                "environment LLMSRV_MAX_QUEUE",
            ),
            (
                "",
                &[("OLLAMA_MAX_QUEUE", "3"), ("LLMSRV_MAX_QUEUE", " ")],
                &[],
                "3",
                "environment OLLAMA_MAX_QUEUE",
            ),
            (
                "",
                &[("LLMSRV_MAX_QUEUE", "4")],
                &[("LLMSRV_MAX_QUEUE", "5")],
                "5",
                "flag --flag",
            ),
        ] {
            let loaded = load(&inputs(file, env_file, environment, flags)).unwrap();
            let (shown, from) = row(&loaded, "LLMSRV_MAX_QUEUE");
            assert_eq!((shown.as_str(), from.to_string().as_str()), (value, origin));
            assert_eq!(loaded.config.server.max_queue.to_string(), value);
        }
    }

    #[test]
    fn every_mistake_of_every_layer_is_reported() {
        let Errors(errors) = load(&inputs(
            "[server]\nmax_queue = \"many\"\nnope = 1\n",
            "LLMSRV_KEEP_ALIVE=soon\nnonsense\n",
            &[
                ("LLMSRV_NUM_PARALLEL", "4097"),
                ("LOGKIT_REDACT", "perhaps"),
            ],
            &[("LLMSRV_HOST", "host:99999")],
        ))
        .unwrap_err();
        let mut said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        said.sort();
        assert_eq!(
            said,
            [
                "--flag has the port `99999`, which is not a number from 0 to 65535",
                ".env:1: LLMSRV_KEEP_ALIVE must be a time such as 30s, 5m or 1h30m (-1 = forever), not `soon`",
                ".env:2: the line is not of the form NAME=value",
                "c.toml:2: server.max_queue must be a whole number from 0, not `many`",
                "c.toml:3: unknown setting `server.nope`",
                "environment: LLMSRV_NUM_PARALLEL must be a whole number from 0 to 4096, not `4097`",
                "environment: LOGKIT_REDACT must be true or false, not `perhaps`",
            ]
        );
        assert_eq!(errors.iter().filter(|error| error.is_usage()).count(), 1);
    }

    #[test]
    fn variables_of_existing_servers_are_forgiven() {
        let loaded = load(&inputs(
            "",
            "",
            &[("OLLAMA_NOPRUNE", "sure"), ("OLLAMA_HOST", "1.2.3.4:99999")],
            &[],
        ))
        .unwrap();
        assert!(loaded.config.server.noprune);
        assert_eq!(loaded.config.server.host.to_string(), "1.2.3.4:11434");
        let said: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("OLLAMA_HOST") && said[0].contains("99999"),
            "{said:?}"
        );
    }

    #[test]
    fn unknown_variables_with_our_prefixes_are_named() {
        let environment = [
            ("LLMSRV_MODLES", "x"),
            ("LOGKIT_ZZZZZZZZ", "y"),
            ("OLLAMA_OTHER", "z"),
            ("PATH", "/bin"),
        ];
        let loaded = load(&inputs("", "LLMSRV_HOTS=1\n", &environment, &[])).unwrap();
        let said: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                ".env:1: unknown variable LLMSRV_HOTS; did you mean `LLMSRV_HOST`?",
                "environment: unknown variable LLMSRV_MODLES; did you mean `LLMSRV_MODELS`?",
                "environment: unknown variable LOGKIT_ZZZZZZZZ",
            ]
        );
    }

    #[test]
    fn a_port_flag_keeps_the_host() {
        let mut inputs = inputs("[server]\nhost = \"0.0.0.0:1\"\n", "", &[], &[]);
        inputs.port = Some(2);
        let loaded = load(&inputs).unwrap();
        assert_eq!(loaded.config.server.host.to_string(), "0.0.0.0:2");
        assert_eq!(row(&loaded, "LLMSRV_HOST").1.to_string(), "flag --port");
    }

    #[cfg(unix)]
    #[test]
    fn values_that_are_not_utf_8_are_refused_by_name() {
        use std::os::unix::ffi::OsStringExt;

        let mut inputs = inputs("", "", &[], &[]);
        inputs
            .environment
            .insert("LLMSRV_LOG".into(), OsString::from_vec(vec![0xff, 0xfe]));
        assert!(
            load(&inputs)
                .unwrap_err()
                .to_string()
                .contains("LLMSRV_LOG is not valid UTF-8")
        );
    }

    proptest! {
        #[test]
        fn any_input_loads_or_says_why(
            names in proptest::collection::vec(0..SETTINGS.len(), 0..6),
            values in proptest::collection::vec("\\PC{0,20}|[-0-9a-z.:]{0,10}", 6),
            file in "(\\[(server|logkit)\\]\n)?([a-z_]{1,8} = [\"0-9a-z]{1,6}\n){0,3}",
            env_file in any::<String>(),
        ) {
            let environment: Vec<(&str, &str)> =
                names.iter().zip(&values).map(|(row_idx, value)| (SETTINGS[*row_idx].name, value.as_str())).collect();
            let _ = load(&inputs(&file, &env_file, &environment, &[]));
        }
    }
}
