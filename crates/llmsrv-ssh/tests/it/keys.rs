//! The key's files: made with the right modes, never overwritten, derived.

use std::{
    fs,
    path::{Path, PathBuf},
};

use llmsrv_ssh::{
    Settings,
    key::{Identity, KeyError, Origin},
};

use crate::sshd::{chmod, mode, run};

fn usual(home: &Path) -> Identity {
    Identity::choose(None, &Settings::default(), home)
}

fn generate(path: &Path, passphrase: &str, more: &[&str]) {
    let file = path.to_str().unwrap();
    let mut args = vec!["-q", "-N", passphrase, "-f", file];
    args.extend(more);
    run("ssh-keygen", &args);
}

#[test]
fn a_key_is_made_once_and_openssh_reads_it() {
    let home = tempfile::tempdir().unwrap();
    let identity = usual(home.path());
    assert!(identity.would_be_made());
    assert!(matches!(identity.inspect(), Err(KeyError::Missing(_))));
    let made = identity.ensure("ann@box").unwrap();
    assert_eq!((made.origin, made.is_encrypted), (Origin::Made, false));
    assert!(made.line.starts_with("ssh-ed25519 ") && made.line.ends_with(" ann@box"));
    let folder = home.path().join(".ssh");
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&identity.private), 0o600);
    assert_eq!(mode(&identity.public), 0o644);
    let listed = run(
        "ssh-keygen",
        &["-y", "-f", identity.private.to_str().unwrap()],
    );
    assert_eq!(listed.trim(), made.line);
    assert_eq!(
        fs::read_to_string(&identity.public).unwrap().trim(),
        made.line
    );

    let before = fs::read(&identity.private).unwrap();
    let again = identity.ensure("somebody@else").unwrap();
    assert_eq!((again.origin, again.line), (Origin::Found, made.line));
    assert_eq!(fs::read(&identity.private).unwrap(), before);
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        2,
        "nothing else is left"
    );
}

#[test]
fn a_missing_public_half_is_derived() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".ssh")).unwrap();
    for passphrase in ["", "secret"] {
        let identity = usual(home.path());
        generate(&identity.private, passphrase, &["-t", "ed25519", "-C", ""]);
        let before = fs::read_to_string(&identity.public).unwrap();
        fs::remove_file(&identity.public).unwrap();
        let key = identity.ensure("").unwrap();
        assert_eq!(key.origin, Origin::Derived);
        assert_eq!(key.is_encrypted, !passphrase.is_empty());
        assert_eq!(key.line.trim(), before.trim());
        assert_eq!(
            fs::read_to_string(&identity.public).unwrap().trim(),
            before.trim()
        );
        assert_eq!(mode(&identity.public), 0o644);
        fs::remove_file(&identity.private).unwrap();
        fs::remove_file(&identity.public).unwrap();
    }
}

#[test]
fn what_cannot_be_derived_says_what_to_type() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("old key");
    generate(&file, "secret", &["-t", "rsa", "-m", "PEM"]);
    fs::remove_file(home.path().join("old key.pub")).unwrap();
    let identity = Identity::choose(Some(&file), &Settings::default(), home.path());
    let error = identity.ensure("").unwrap_err();
    assert!(matches!(error, KeyError::CannotDerive { .. }), "{error}");
    let fix = error.fixes().concat();
    assert!(
        fix.contains(&format!("ssh-keygen -y -f '{}'", file.display())),
        "{fix}"
    );
}

#[test]
fn keys_of_other_types_and_formats_are_taken_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    for (kind, more) in [
        ("rsa", &["-m", "PEM"][..]),
        ("ecdsa", &[]),
        ("ed25519", &[]),
    ] {
        let file = home.path().join(kind);
        generate(&file, "", &[&["-t", kind], more].concat());
        let key = Identity::choose(Some(&file), &Settings::default(), home.path());
        assert_eq!(key.ensure("").unwrap().origin, Origin::Found, "{kind}");
    }
    // The private half may be in an agent.
    let public = home.path().join("ecdsa.pub");
    fs::remove_file(home.path().join("ecdsa")).unwrap();
    let key = Identity::choose(Some(&public), &Settings::default(), home.path());
    assert!(key.ensure("").unwrap().line.starts_with("ecdsa-"));
}

#[test]
fn halves_of_two_pairs_and_what_is_no_key_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (home.path().join("one"), home.path().join("two"));
    generate(&one, "", &["-t", "ed25519"]);
    generate(&two, "", &["-t", "ed25519"]);
    fs::copy(home.path().join("two.pub"), home.path().join("one.pub")).unwrap();
    let ensure = |path: &Path| {
        let key = Identity::choose(Some(path), &Settings::default(), home.path());
        key.ensure("").unwrap_err()
    };
    assert!(matches!(ensure(&one), KeyError::Mismatch { .. }));
    for text in [
        "",
        "hello",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-rsa !!!! x",
    ] {
        fs::write(home.path().join("one.pub"), text).unwrap();
        assert!(matches!(ensure(&one), KeyError::NotAKey(..)), "{text:?}");
    }
    fs::remove_file(home.path().join("one.pub")).unwrap();
    fs::write(&one, "hello").unwrap();
    assert!(matches!(ensure(&one), KeyError::NotAKey(..)));
    assert_eq!(fs::read_to_string(&one).unwrap(), "hello");
    assert!(matches!(
        ensure(Path::new("/dev/zero")),
        KeyError::NotAKey(..)
    ));
    assert!(matches!(
        ensure(&home.path().join("none")),
        KeyError::Missing(_)
    ));
}

#[test]
fn what_is_in_the_way_is_not_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let identity = usual(home.path());
    fs::create_dir(home.path().join(".ssh")).unwrap();
    // A link that leads nowhere is somebody's all the same.
    std::os::unix::fs::symlink("/nonexistent/key", &identity.private).unwrap();
    assert!(identity.ensure("").is_err());
    assert_eq!(
        fs::read_link(&identity.private).unwrap(),
        PathBuf::from("/nonexistent/key")
    );

    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(".ssh"), "a file").unwrap();
    let error = usual(home.path()).ensure("").unwrap_err();
    assert!(matches!(error, KeyError::Unwritable { .. }), "{error}");
    assert!(!error.fixes().is_empty());
}

#[test]
fn many_at_once_make_one_key() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".ssh")).unwrap();
    chmod(&home.path().join(".ssh"), 0o700);
    let lines: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| usual(home.path()).ensure("ann@box").unwrap().line))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(lines.iter().all(|line| *line == lines[0]), "{lines:#?}");
}

#[test]
fn the_settings_name_the_key() {
    let settings = |files: &[&str]| Settings {
        identity_files: files.iter().map(ToString::to_string).collect(),
        ..Settings::default()
    };
    let choose = |files: &[&str]| Identity::choose(None, &settings(files), Path::new("/h")).private;
    assert_eq!(
        choose(&["~/.ssh/id_rsa", "~/.ssh/id_ed25519"]),
        PathBuf::from("/h/.ssh/id_ed25519")
    );
    assert_eq!(
        choose(&["~/.ssh/work", "~/.ssh/play"]),
        PathBuf::from("/h/.ssh/work")
    );
    assert_eq!(choose(&["/k/work"]), PathBuf::from("/k/work"));
    let named = Identity::choose(
        Some(Path::new("mine")),
        &settings(&["~/.ssh/work"]),
        Path::new("/h"),
    );
    assert_eq!(
        (named.private, named.public),
        ("mine".into(), "mine.pub".into())
    );
}
