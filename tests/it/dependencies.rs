//! The policy for dependencies, `deny.toml`, held against what cargo would build here. `cargo deny check bans licenses
//! sources` does the same for all of its targets, and takes minutes to compile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use serde_json::Value;

use crate::tidy::root;

/// The packages of the program and its tests on this system, as cargo describes them.
fn metadata() -> Value {
    let host = Command::new("rustc").args(["-vV"]).output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", host.unwrap()])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Reads a file in TOML.
fn read(name: &str) -> Value {
    let text = fs::read_to_string(root().join(name)).unwrap();
    toml::from_str(&text).unwrap()
}

fn policy() -> Value {
    read("deny.toml")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The packages that others made.
fn foreign(metadata: &Value) -> impl Iterator<Item = &Value> {
    let packages = list(&metadata["packages"]).iter();
    packages.filter(|package| !package["source"].is_null())
}

/// Tells whether an expression of licences (SPDX; `/` is an older `OR`) can be fulfilled with those that are allowed.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    fn any(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
        let mut is_allowed = all(words, allowed);
        while words.take("OR") {
            is_allowed |= all(words, allowed);
        }
        is_allowed
    }
    fn all(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
        let mut is_allowed = one(words, allowed);
        while words.take("AND") {
            is_allowed &= one(words, allowed);
        }
        is_allowed
    }
    fn one(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
        if words.take("(") {
            let is_allowed = any(words, allowed);
            return words.take(")") && is_allowed;
        }
        let mut name = words.0.pop().unwrap_or_default().to_owned();
        if words.take("WITH") {
            name = format!("{name} WITH {}", words.0.pop().unwrap_or_default());
        }
        allowed.contains(name.as_str())
    }
    /// Those that are left, the next one last.
    struct Words<'a>(Vec<&'a str>);
    impl Words<'_> {
        fn take(&mut self, word: &str) -> bool {
            self.0.pop_if(|next| *next == word).is_some()
        }
    }
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let spaced = spaced.replace('/', " OR ");
    let mut words = Words(spaced.split_whitespace().rev().collect());
    any(&mut words, allowed) && words.0.is_empty()
}

#[test]
fn expressions_of_licences_are_understood() {
    let allowed = BTreeSet::from(["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"]);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND Zlib OR GPL-3.0", true),
        ("(MIT OR GPL-3.0) AND Zlib", true),
        ("(MIT OR Zlib) AND GPL-3.0", false),
        ("MIT AND (GPL-3.0 OR Apache-2.0 WITH LLVM-exception)", true),
        ("MIT Zlib", false),
        ("(MIT", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn licences_are_those_of_the_policy_and_all_libraries_come_from_one_registry() {
    let (metadata, policy) = (metadata(), policy());
    let allowed = list(&policy["licenses"]["allow"]).iter();
    let allowed: BTreeSet<&str> = allowed.filter_map(Value::as_str).collect();
    let (mut n_packages, mut sources) = (0, BTreeSet::new());
    for package in foreign(&metadata) {
        let (name, version) = (&package["name"], &package["version"]);
        let expression = package["license"].as_str().unwrap_or_default();
        assert!(
            is_allowed(expression, &allowed),
            "{name} {version} is under {expression:?}; deny.toml allows {allowed:?}"
        );
        sources.insert(package["source"].as_str().unwrap());
        n_packages += 1;
    }
    assert!(n_packages > 300, "{n_packages} packages");
    let is_one_registry =
        sources.len() == 1 && sources.iter().all(|it| it.starts_with("registry+"));
    assert!(is_one_registry, "{sources:?}");
}

#[test]
fn what_is_banned_is_absent_or_has_the_users_that_the_policy_names() {
    let (metadata, policy) = (metadata(), policy());
    let names = list(&metadata["packages"]).iter().filter_map(|package| {
        let (id, name) = (package["id"].as_str()?, package["name"].as_str()?);
        Some((id, name))
    });
    let names: BTreeMap<&str, &str> = names.collect();
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        for used in list(&node["dependencies"]) {
            let user = names[node["id"].as_str().unwrap()];
            let used = names[used.as_str().unwrap()];
            users.entry(used).or_default().insert(user);
        }
    }
    let banned = list(&policy["bans"]["deny"]);
    assert!(banned.len() > 5, "{banned:?}");
    for row in banned {
        let name = row["crate"].as_str().unwrap();
        let allowed = list(&row["wrappers"]).iter();
        let allowed: BTreeSet<&str> = allowed.filter_map(Value::as_str).collect();
        let found = users.get(name).cloned().unwrap_or_default();
        assert_eq!(found, allowed, "who uses {name}: {}", row["reason"]);
    }
}

/// The versions of each library.
fn versions(packages: &[Value]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let (name, version) = (&package["name"], &package["version"]);
        let of_name = versions.entry(name.as_str().unwrap()).or_default();
        of_name.insert(version.as_str().unwrap());
    }
    versions
}

#[test]
fn a_second_version_of_a_library_has_a_reason() {
    let (metadata, policy, lock) = (metadata(), policy(), read("Cargo.lock"));
    let skipped = list(&policy["bans"]["skip"]).iter();
    let skipped = skipped.filter_map(|row| row["crate"].as_str()?.split_once('@'));
    let skipped: BTreeSet<(&str, &str)> = skipped.collect();
    for (name, of_name) in versions(list(&metadata["packages"])) {
        let without = of_name.iter().filter(|it| !skipped.contains(&(name, **it)));
        assert!(
            without.count() < 2,
            "{name} {of_name:?}: all but one need a row of `skip` in deny.toml"
        );
    }
    // The lock file has those of other systems, too.
    let locked = versions(list(&lock["package"]));
    for (name, version) in skipped {
        let of_name = locked.get(name).cloned().unwrap_or_default();
        assert!(
            of_name.len() > 1 && of_name.contains(version),
            "{name}@{version} is in `skip` of deny.toml, and there is {of_name:?}"
        );
    }
}
