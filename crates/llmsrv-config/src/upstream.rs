//! `[upstream.NAME]`: servers that answer for some models. There may be any number of them, so they
//! are no rows of the table of settings, and only a file can name them.

use std::{collections::BTreeMap, time::Duration};

use toml::de::{DeTable, DeValue};

use crate::{Error, Origin, Secret, TextFile, nearest, value::duration};

/// One server.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// The name of its table.
    pub name: String,
    /// Address of its OpenAI-compatible API, without a slash at the end.
    pub url: String,
    /// Key to send.
    pub api_key: Option<Secret>,
    /// Our names of its models, each with its own name of it.
    pub models: Vec<(String, String)>,
    /// Share of the requests.
    pub weight: u32,
    /// Requests that it gets at the same time; 0 = no limit.
    pub parallel: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long it may take to say its first word.
    pub first_token_timeout: Duration,
    /// How long it may be silent after that.
    pub idle_timeout: Duration,
    /// Time between checks of its health.
    pub health_interval: Duration,
    /// Path under `url` that is asked for its health.
    pub health_path: String,
    /// A model of that name on this machine may answer when no server does.
    pub local_fallback: bool,
}

/// Name of the table that holds all of them.
pub(crate) const SECTION: &str = "upstream";

/// Every key of a table, with its help.
pub(crate) const KEYS: &[(&str, &str)] = &[
    (
        "url",
        "Address of an OpenAI-compatible API, such as `http://10.0.0.7:8000/v1`; required",
    ),
    (
        "models",
        "Models it serves: a list of names, or a table from our names to its own; required",
    ),
    ("api_key", "Key to send"),
    ("api_key_env", "Environment variable that holds the key"),
    (
        "weight",
        "Share of the requests, against other servers of the same model; default 1",
    ),
    (
        "parallel",
        "Requests it gets at the same time; default 0 = no limit",
    ),
    (
        "connect_timeout",
        "How long connecting may take; default 5s",
    ),
    (
        "first_token_timeout",
        "How long it may take to say its first word; default 5m",
    ),
    (
        "idle_timeout",
        "How long it may be silent after that; default 1m",
    ),
    (
        "health_interval",
        "Time between checks of its health; default 10s",
    ),
    (
        "health_path",
        "Path under `url` that is asked for its health; default `/models`",
    ),
    (
        "local_fallback",
        "A model of that name on this machine answers when no server does; default false",
    ),
];

/// Reads all servers; what is wrong goes to `errors`.
pub(crate) fn read(
    file: &TextFile,
    environment: &BTreeMap<String, String>,
    errors: &mut Vec<Error>,
) -> Vec<UpstreamConfig> {
    // Syntax errors are reported where the rest of the file is read.
    let (document, syntax) = DeTable::parse_recoverable(&file.text);
    let Some(section) = document
        .get_ref()
        .get(SECTION)
        .filter(|_| syntax.is_empty())
    else {
        return Vec::new();
    };
    let mut reader = Reader {
        file,
        environment,
        errors,
    };
    let DeValue::Table(servers) = section.get_ref() else {
        reader.refuse(
            section.span().start,
            SECTION,
            "must be a table for each server: [upstream.NAME]",
        );
        return Vec::new();
    };
    let mut read = Vec::new();
    for (name, server) in servers {
        let at = name.span().start;
        match server.get_ref() {
            DeValue::Table(table) => read.extend(reader.server(name.get_ref(), at, table)),
            _ => reader.refuse(
                at,
                &format!("{SECTION}.{}", name.get_ref()),
                "must be a table",
            ),
        }
    }
    read
}

struct Reader<'a> {
    file: &'a TextFile,
    environment: &'a BTreeMap<String, String>,
    errors: &'a mut Vec<Error>,
}

impl Reader<'_> {
    fn refuse(&mut self, at: usize, name: &str, problem: impl Into<String>) {
        self.errors.push(Error::BadValue {
            origin: Origin::File {
                path: self.file.path.clone(),
                line: self.file.line_of(at),
            },
            name: name.to_owned(),
            problem: problem.into(),
        });
    }

    fn server(&mut self, name: &str, at: usize, table: &DeTable<'_>) -> Option<UpstreamConfig> {
        let n_before = self.errors.len();
        let mut server = UpstreamConfig {
            name: name.to_owned(),
            url: String::new(),
            api_key: None,
            models: Vec::new(),
            weight: 1,
            parallel: 0,
            connect_timeout: Duration::from_secs(5),
            first_token_timeout: Duration::from_mins(5),
            idle_timeout: Duration::from_mins(1),
            health_interval: Duration::from_secs(10),
            health_path: "/models".into(),
            local_fallback: false,
        };
        for (key, value) in table {
            let at = key.span().start;
            let key = key.get_ref().as_ref();
            let full = format!("{SECTION}.{name}.{key}");
            let value = value.get_ref();
            let done = match key {
                "url" => text(value).and_then(url).map(|url| server.url = url),
                "models" => models(value).map(|models| server.models = models),
                "api_key" => text(value).map(|key| server.api_key = Some(Secret::new(key))),
                "api_key_env" => text(value).and_then(|variable| {
                    let key = self.environment.get(&variable);
                    let key = key.ok_or(format!("names {variable}, which is not set"))?;
                    server.api_key = Some(Secret::new(key.clone()));
                    Ok(())
                }),
                "weight" => number(value, 1).map(|weight| server.weight = weight),
                "parallel" => number(value, 0).map(|limit| server.parallel = limit as usize),
                "connect_timeout" => time(value).map(|time| server.connect_timeout = time),
                "first_token_timeout" => time(value).map(|time| server.first_token_timeout = time),
                "idle_timeout" => time(value).map(|time| server.idle_timeout = time),
                "health_interval" => time(value).map(|time| server.health_interval = time),
                "health_path" => text(value).and_then(|path| {
                    let sound = path.starts_with('/');
                    server.health_path = path;
                    sound
                        .then_some(())
                        .ok_or_else(|| "must begin with a slash".to_owned())
                }),
                "local_fallback" => match value {
                    DeValue::Boolean(on) => {
                        server.local_fallback = *on;
                        Ok(())
                    }
                    _ => Err("must be true or false".to_owned()),
                },
                _ => {
                    self.errors.push(Error::UnknownKey {
                        path: self.file.path.clone(),
                        line: self.file.line_of(at),
                        key: full,
                        nearest: nearest(key, KEYS.iter().map(|(key, _)| *key)).map(str::to_owned),
                    });
                    continue;
                }
            };
            if let Err(problem) = done {
                self.refuse(at, &full, problem);
            }
        }
        for (key, missing) in [
            ("url", server.url.is_empty()),
            ("models", server.models.is_empty()),
        ] {
            if missing && !table.keys().any(|known| known.get_ref() == key) {
                self.refuse(at, &format!("{SECTION}.{name}"), format!("needs `{key}`"));
            }
        }
        (self.errors.len() == n_before).then_some(server)
    }
}

fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) if !text.is_empty() => Ok(text.to_string()),
        DeValue::String(_) => Err("must not be empty".into()),
        other => Err(format!("must be a text, not {}", other.type_str())),
    }
}

fn url(text: String) -> Result<String, String> {
    let rest = text
        .strip_prefix("http://")
        .or(text.strip_prefix("https://"));
    let sound = rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['?', '#', '@', ' '])
    });
    if sound {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err(
            "must be an address that begins with http:// or https://, without a user, ? or #"
                .into(),
        )
    }
}

fn models(value: &DeValue<'_>) -> Result<Vec<(String, String)>, String> {
    let models: Vec<(String, String)> = match value {
        DeValue::Array(names) => names
            .iter()
            .map(|name| text(name.get_ref()).map(|name| (name.clone(), name)))
            .collect::<Result<_, _>>()?,
        DeValue::Table(names) => names
            .iter()
            .map(|(ours, theirs)| Ok((ours.get_ref().to_string(), text(theirs.get_ref())?)))
            .collect::<Result<_, String>>()?,
        other => {
            return Err(format!(
                "must be a list or a table of names, not {}",
                other.type_str()
            ));
        }
    };
    if models.is_empty() {
        return Err("must name at least one model".into());
    }
    Ok(models)
}

fn number(value: &DeValue<'_>, min: u32) -> Result<u32, String> {
    let number = match value {
        DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    let number = number.filter(|number| (min..=1_000_000).contains(number));
    number.ok_or_else(|| format!("must be a whole number from {min} to 1000000"))
}

fn time(value: &DeValue<'_>) -> Result<Duration, String> {
    let parsed = match value {
        DeValue::String(text) => duration(text)?,
        DeValue::Integer(number) => duration(number.as_str())?,
        other => {
            return Err(format!(
                "must be a time such as \"5s\", not {}",
                other.type_str()
            ));
        }
    };
    parsed
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "must be more than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Vec<UpstreamConfig>, Vec<String>) {
        let file = TextFile {
            path: "c.toml".into(),
            text: text.into(),
        };
        let environment = BTreeMap::from([("VLLM_KEY".to_owned(), "secret".to_owned())]);
        let mut errors = Vec::new();
        let read = read(&file, &environment, &mut errors);
        (read, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn servers_are_read_with_their_defaults() {
        let (servers, errors) = parse(
            "[upstream.a]\nurl = \"http://10.0.0.7:8000/v1/\"\nmodels = [\"big\"]\n\
             [upstream.b]\nurl = \"https://b/v1\"\nmodels = { big = \"org/Big-70B\" }\nweight = 3\napi_key_env = \"VLLM_KEY\"\n\
             idle_timeout = \"90s\"\nlocal_fallback = true\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(servers[0].url, "http://10.0.0.7:8000/v1");
        assert_eq!(servers[0].models, [("big".into(), "big".into())]);
        assert_eq!((servers[0].weight, servers[0].local_fallback), (1, false));
        assert_eq!(servers[1].models, [("big".into(), "org/Big-70B".into())]);
        assert_eq!(servers[1].api_key.as_ref().unwrap().expose(), "secret");
        assert_eq!(servers[1].idle_timeout, Duration::from_secs(90));
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        for (text, error) in [
            (
                "[upstream.a]\nurl = \"http://h/v1\"\n",
                "c.toml:1: upstream.a needs `models`",
            ),
            (
                "[upstream.a]\nurl = \"ftp://h\"\nmodels = [\"m\"]\n",
                "c.toml:2: upstream.a.url must be an address that begins with http:// or https://, without a user, ? or #",
            ),
            (
                "[upstream.a]\nurl = \"http://h\"\nmodels = []\n",
                "c.toml:3: upstream.a.models must name at least one model",
            ),
            (
                "[upstream.a]\nurl = \"http://h\"\nmodels = [\"m\"]\nwieght = 2\n",
                "c.toml:4: unknown setting `upstream.a.wieght`; did you mean `weight`?",
            ),
            (
                "[upstream.a]\nurl = \"http://h\"\nmodels = [\"m\"]\nweight = 0\n",
                "c.toml:4: upstream.a.weight must be a whole number from 1 to 1000000",
            ),
            (
                "[upstream.a]\nurl = \"http://h\"\nmodels = [\"m\"]\napi_key_env = \"NONE\"\n",
                "c.toml:4: upstream.a.api_key_env names NONE, which is not set",
            ),
            (
                "[upstream.a]\nurl = \"http://h\"\nmodels = [\"m\"]\nidle_timeout = 0\n",
                "c.toml:4: upstream.a.idle_timeout must be more than 0",
            ),
            (
                "[upstream]\na = 1\n",
                "c.toml:2: upstream.a must be a table",
            ),
            (
                "upstream = 1\n",
                "c.toml:1: upstream must be a table for each server: [upstream.NAME]",
            ),
        ] {
            let (servers, errors) = parse(text);
            assert_eq!(errors, [error], "{text}");
            assert!(servers.is_empty());
        }
    }
}
