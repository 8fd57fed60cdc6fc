use std::{os::unix::net::UnixStream, thread};

use llmsrv_engine::{BlockId, Span, fake};

use super::*;
use crate::serve::serve_socket;

/// Workers that are shell scripts; the socket is their stdin.
fn launcher(script: &str, step: Duration) -> Launcher {
    let limits = Limits {
        step: Some(step),
        load: Some(step),
    };
    let arguments = vec!["-c".into(), script.into()];
    Launcher::new("/bin/sh".into(), arguments, limits)
}

fn reason(launcher: &Launcher) -> String {
    let loaded = launcher.load(Path::new("model"), &LoadOptions::default());
    match loaded.map(|_| ()) {
        Err(LoadError::DeviceLost { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn crashes_hangs_and_nonsense_are_told_apart() {
    let long = Duration::from_secs(30);
    for (script, limit, expected) in [
        ("kill -SEGV $$", long, "its process was ended by SIGSEGV"),
        ("exit 3", long, "its process ended (exit status: 3)"),
        (
            "exec sleep 60",
            Duration::from_millis(200),
            "no answer in time",
        ),
        (
            "kill -STOP $$",
            Duration::from_millis(200),
            "no answer in time",
        ),
        // A frame of 2 bytes that is no message; one that is far too long; the beginning of one.
        (
            r"printf '\2\0\0\0\0\0\0\0\11\11' >&0; exec sleep 60",
            long,
            "it sent what is no message",
        ),
        (
            r"printf '\0\0\0\0\0\0\0\1' >&0; exec sleep 60",
            long,
            "a message is longer than any may be",
        ),
        (
            r"printf '\5\0\0\0\0\0\0\0\1' >&0; exit 0",
            long,
            "its process ended (exit status: 0)",
        ),
    ] {
        let begun = Instant::now();
        assert_eq!(reason(&launcher(script, limit)), expected, "{script}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{script}");
    }
}

#[test]
fn a_model_whose_worker_always_crashes_is_refused_at_once_for_a_while() {
    let folder = std::env::temp_dir().join(format!("llmsrv-worker-{}", std::process::id()));
    let script = format!("echo started >> {}; exit 9", folder.display());
    let launcher = launcher(&script, Duration::from_secs(30));
    let n_started = || std::fs::read_to_string(&folder).map_or(0, |text| text.lines().count());
    let expected = "its process ended (exit status: 9)";
    for _ in 0..3 {
        assert_eq!(reason(&launcher), expected);
    }
    assert_eq!(n_started(), 1, "the others were refused without a process");
    let deadline = Instant::now() + Duration::from_secs(20);
    while n_started() < 2 {
        assert!(Instant::now() < deadline, "it is never tried again");
        assert_eq!(reason(&launcher), expected);
        thread::yield_now();
    }
    std::fs::remove_file(&folder).unwrap();
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let none = Launcher::new("/nonexistent".into(), Vec::new(), Limits::default());
    let loaded = none.load(Path::new("model"), &LoadOptions::default());
    assert!(matches!(loaded.map(|_| ()), Err(LoadError::Io(_))));
}

/// A step of one sequence with these tokens from its beginning.
fn step(tokens: &[u32]) -> StepPlan {
    StepPlan {
        tokens: tokens.to_vec(),
        positions: (0..tokens.len() as u32).collect(),
        ends: (1..=tokens.len() as u32).collect(),
        spans: vec![Span {
            rows: 0..tokens.len(),
            start: 0,
            blocks: vec![BlockId(0)],
            tail: None,
            state: None,
        }],
        logit_rows: vec![0, tokens.len() as u32 - 1],
        ..StepPlan::default()
    }
}

/// A worker whose other side is a thread; its process does nothing.
fn served() -> (RemoteModel, thread::JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        let load = |_: &Path, _: &LoadOptions| {
            let fake = fake::FakeOptions {
                memory_blocks: 4,
                ..fake::FakeOptions::default()
            };
            Ok(fake::loaded(fake).model)
        };
        serve_socket(theirs, &(|_| Ok(Vec::new()), load)).unwrap();
    });
    let program = Program {
        path: "/bin/cat".into(),
        arguments: Vec::new(),
    };
    let (process, socket) = Process::start(&program).unwrap();
    // It ends.
    drop(socket);
    let mut worker = Worker {
        process,
        frames: Some(Frames::new(ours)),
        frame: Vec::new(),
        lost: String::new(),
    };
    let request = Request::Load("model".into(), Box::default());
    let Ok(Reply::Loaded(spec)) = worker.ask(&request, None) else {
        panic!("it is not loaded");
    };
    let remote = RemoteModel {
        spec,
        worker,
        limit: Some(Duration::from_secs(30)),
    };
    (remote, serving)
}

#[test]
fn a_remote_model_computes_what_the_model_does() {
    let (mut remote, serving) = served();
    let mut own = fake::loaded(fake::FakeOptions::default()).model;
    assert_eq!(remote.spec(), own.spec());
    for model in [&mut remote as &mut dyn Model, &mut *own] {
        model.reserve_blocks(1).unwrap();
    }
    let plan = step(&[72, 101, 108]);
    let width = own.spec().vocab_size;
    let (mut found, mut expected) = (vec![0.0; 2 * width], vec![1.0; 2 * width]);
    remote.forward(&plan, &mut found).unwrap();
    own.forward(&plan, &mut expected).unwrap();
    assert_eq!(found, expected);
    let width = own.spec().embedding.unwrap().width;
    let (mut found, mut expected) = (vec![0.0; 2 * width], vec![1.0; 2 * width]);
    remote.embed(&plan, &mut found).unwrap();
    own.embed(&plan, &mut expected).unwrap();
    assert_eq!(found, expected);
    // An error of the model leaves the worker as it is.
    assert!(matches!(
        remote.reserve_blocks(5),
        Err(ModelError::OutOfMemory(5))
    ));
    remote.reserve_blocks(2).unwrap();
    drop(remote);
    serving.join().unwrap();
}

#[test]
fn a_lost_worker_stays_lost_and_is_told_of_once() {
    let (process, socket) = Process::start(&Program {
        path: "/bin/cat".into(),
        arguments: Vec::new(),
    })
    .unwrap();
    let worker = Worker {
        process,
        frames: Some(Frames::new(socket)),
        frame: Vec::new(),
        lost: String::new(),
    };
    let mut remote = RemoteModel {
        spec: fake::loaded(fake::FakeOptions::default())
            .model
            .spec()
            .clone(),
        worker,
        limit: Some(Duration::from_secs(30)),
    };
    let (told, tell) = std::sync::mpsc::channel();
    remote.on_loss(Box::new(move |why| told.send(why).unwrap()));
    let width = remote.spec().vocab_size;

    remote.worker.process.end(Duration::ZERO);
    for _ in 0..2 {
        let outcome = remote.forward(&step(&[1]), &mut vec![0.0; 2 * width]);
        assert!(
            matches!(&outcome, Err(ModelError::DeviceLost(why)) if why == "its process was ended by SIGKILL"),
            "{outcome:?}"
        );
    }
    assert_eq!(tell.recv().unwrap(), "its process was ended by SIGKILL");
    assert!(tell.recv().is_err(), "nobody is left to tell");
}
