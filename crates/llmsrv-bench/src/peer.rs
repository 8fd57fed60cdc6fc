//! Other engines, measured in the same rounds.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{Error, Test, raw::WARM_UP};

/// Another engine, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerSpec {
    /// A command for `sh` that measures one test and prints its tokens per second: as a number, or
    /// as llama-bench does with `-o json`. `{model}`, `{threads}`, `{pp}`, `{tg}`, `{depth}` and
    /// `{batch}` are replaced.
    Command(String),
    /// A Python interpreter that can import `llama_cpp` or `ik_llama_cpp`.
    Python {
        /// The interpreter.
        interpreter: PathBuf,
        /// Weights may be packed when they are loaded: the default of llama.cpp, not of ik_llama.cpp.
        repack: bool,
    },
}

/// What another engine may use of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Threads of the arithmetic.
    pub(crate) threads: usize,
    /// The GPU to compute on, by its number in the order of the Vulkan loader.
    pub(crate) gpu: Option<usize>,
}

/// Another engine with the model loaded.
pub(crate) struct Peer {
    pub(crate) name: String,
    /// What its figures leave out.
    pub(crate) note: Option<String>,
    kind: Kind,
}

enum Kind {
    Command {
        template: String,
        model: PathBuf,
        machine: Machine,
    },
    Python(Box<Interpreter>),
}

/// A running interpreter; it is ended when dropped.
struct Interpreter {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Gets the model ready for `tests`.
    pub(crate) fn start(
        spec: &PeerSpec,
        model: &Path,
        machine: Machine,
        tests: &[Test],
    ) -> Result<Peer, Error> {
        match spec {
            PeerSpec::Command(template) => Ok(Peer {
                name: template
                    .split_whitespace()
                    .next()
                    .unwrap_or("peer")
                    .to_owned(),
                note: None,
                kind: Kind::Command {
                    template: template.clone(),
                    model: model.to_owned(),
                    machine,
                },
            }),
            PeerSpec::Python {
                interpreter,
                repack,
            } => {
                let failed = |reason: String| Error::Peer {
                    peer: interpreter.display().to_string(),
                    reason,
                };
                let mut python = Interpreter::start(interpreter, machine)
                    .map_err(|error| failed(error.to_string()))?;
                let positions = tests.iter().map(|test| test.positions()).max();
                let sequences = tests.iter().map(|test| test.sequences()).max();
                let answer = python
                    .ask(&json!({
                        "call": "load",
                        "model": model,
                        "threads": machine.threads,
                        "gpu": machine.gpu.is_some(),
                        "positions": positions.unwrap_or(1),
                        "sequences": sequences.unwrap_or(1),
                        "repack": repack,
                    }))
                    .map_err(failed)?;
                let engine = answer["engine"].as_str().unwrap_or("peer");
                let how = if *repack { "" } else { ", no repacking" };
                let is_beside = machine.gpu.is_some() && answer["gpu"] != true;
                let place = if is_beside { ", CPU" } else { "" };
                Ok(Peer {
                    name: format!("{engine}{how}{place}"),
                    note: is_beside.then(|| {
                        format!(
                            "{engine} computes on the CPU: its build has no GPU, or it sees none"
                        )
                    }),
                    kind: Kind::Python(Box::new(python)),
                })
            }
        }
    }

    /// Makes what comes before a test, and runs a little of it.
    pub(crate) fn prepare(&mut self, test: Test) -> Result<(), Error> {
        let short = match test {
            Test::Prefill { n, depth } => Test::Prefill {
                n: n.min(WARM_UP),
                depth,
            },
            Test::Decode { n, depth, batch } => Test::Decode {
                n: n.min(2),
                depth,
                batch,
            },
        };
        match &self.kind {
            // A command begins anew each time.
            Kind::Command { .. } => Ok(()),
            Kind::Python(_) => self.run(short).map(|_| ()),
        }
    }

    /// Runs a test once. Returns tokens per second; `None` if it cannot do such a test.
    pub(crate) fn run(&mut self, test: Test) -> Result<Option<f64>, Error> {
        let outcome = match &mut self.kind {
            Kind::Command {
                template,
                model,
                machine,
            } => run_command(template, model, *machine, test),
            Kind::Python(python) => python.run(test).map(Some),
        };
        outcome.map_err(|reason| Error::Peer {
            peer: self.name.clone(),
            reason,
        })
    }
}

fn run_command(
    template: &str,
    model: &Path,
    machine: Machine,
    test: Test,
) -> Result<Option<f64>, String> {
    let (pp, tg) = match test {
        Test::Prefill { n, .. } => (n, 0),
        Test::Decode { n, .. } => (0, n),
    };
    let cannot = |place: &str, is_needed: bool| is_needed && !template.contains(place);
    if cannot("{depth}", test.depth() > 0) || cannot("{batch}", test.sequences() > 1) {
        return Ok(None);
    }
    let model = format!("'{}'", model.display().to_string().replace('\'', r"'\''"));
    let command = template
        .replace("{model}", &model)
        .replace("{threads}", &machine.threads.to_string())
        .replace("{pp}", &pp.to_string())
        .replace("{tg}", &tg.to_string())
        .replace("{depth}", &test.depth().to_string())
        .replace("{batch}", &test.sequences().to_string());
    let output = Command::new("sh")
        .args(["-c", &command])
        .envs(machine.visible())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{} from: {command}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    speed(&text)
        .map(Some)
        .ok_or_else(|| format!("no tokens per second in the output of: {command}"))
}

/// Finds the figure in what a command printed: llama-bench's JSON, or the last number.
fn speed(text: &str) -> Option<f64> {
    let last = match serde_json::from_str::<Value>(text.trim()) {
        Ok(Value::Array(results)) => results.last()?.get("avg_ts")?.as_f64(),
        Ok(value) => value.as_f64().or_else(|| value.get("avg_ts")?.as_f64()),
        Err(_) => text
            .split_whitespace()
            .rev()
            .find_map(|word| word.parse().ok()),
    };
    last.filter(|speed: &f64| speed.is_finite() && *speed > 0.0)
}

impl Machine {
    /// Returns what lets llama.cpp's Vulkan backend see the one GPU.
    fn visible(self) -> Option<(&'static str, String)> {
        let number = self.gpu?.to_string();
        Some(("GGML_VK_VISIBLE_DEVICES", number))
    }
}

impl Interpreter {
    fn start(interpreter: &Path, machine: Machine) -> std::io::Result<Interpreter> {
        let mut child = Command::new(interpreter)
            .args(["-c", include_str!("peer.py")])
            .envs(machine.visible())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(answers)) => Ok(Interpreter {
                child,
                requests,
                answers: BufReader::new(answers),
            }),
            _ => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn run(&mut self, test: Test) -> Result<f64, String> {
        let (kind, n) = match test {
            Test::Prefill { n, .. } => ("prefill", n),
            Test::Decode { n, .. } => ("decode", n),
        };
        let answer = self.ask(&json!({
            "call": "run",
            "kind": kind,
            "n": n,
            "depth": test.depth(),
            "batch": test.sequences(),
        }))?;
        let seconds = answer["seconds"].as_f64().filter(|seconds| *seconds > 0.0);
        let seconds = seconds.ok_or("it does not say how long it took")?;
        Ok(test.tokens() as f64 / seconds)
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        writeln!(self.requests, "{request}").map_err(|error| error.to_string())?;
        let mut line = String::new();
        let n_bytes = self.answers.read_line(&mut line);
        if n_bytes.map_err(|error| error.to_string())? == 0 {
            return Err("it ended; can it import llama_cpp or ik_llama_cpp?".into());
        }
        let answer: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFILL: Test = Test::Prefill { n: 512, depth: 0 };
    const DEEP: Test = Test::Decode {
        n: 16,
        depth: 64,
        batch: 2,
    };

    fn run(template: &str, test: Test) -> Result<Option<f64>, String> {
        run_on(template, test, None)
    }

    fn run_on(template: &str, test: Test, gpu: Option<usize>) -> Result<Option<f64>, String> {
        let machine = Machine { threads: 2, gpu };
        run_command(template, Path::new("it's a model.gguf"), machine, test)
    }

    #[test]
    fn commands_get_what_they_ask_for_and_print_a_number_or_json() {
        assert_eq!(run("echo {threads}{pp}{tg}", PREFILL), Ok(Some(25_120.0)));
        let json = r#"echo '[{"model": "m", "avg_ts": 12.5}]'"#;
        assert_eq!(run(json, PREFILL), Ok(Some(12.5)));
        let named = r#"[ {model} = "it's a model.gguf" ] && echo speed: 7.5"#;
        assert_eq!(run(named, PREFILL), Ok(Some(7.5)));
        assert_eq!(run("echo {depth}.{batch}", DEEP), Ok(Some(64.2)));
        let visible = "echo 1${GGML_VK_VISIBLE_DEVICES-0}";
        assert_eq!(run_on(visible, PREFILL, Some(3)), Ok(Some(13.0)));
        assert_eq!(run(visible, PREFILL), Ok(Some(10.0)));
    }

    #[test]
    fn what_a_command_cannot_do_is_left_out_and_its_failure_is_told() {
        assert_eq!(run("echo {batch}", DEEP), Ok(None));
        assert!(run("exit 3", PREFILL).unwrap_err().contains("exit 3"));
        assert!(run("echo none", PREFILL).is_err());
        assert!(run("echo -1", PREFILL).is_err());
    }
}
