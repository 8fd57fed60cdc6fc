//! Packages, scripts and completions as users get them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::util::{Output, Sandbox};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Debian package with the program under test in it, made once.
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root().join("target"), PathBuf::from);
        assert!(
            target.join("tools/bin/cargo-deb").exists(),
            "cargo-deb is missing; `packaging/deb --prepare` installs it"
        );
        let built = Output::of(
            Command::new(root().join("packaging/deb"))
                .args(["--binary", env!("CARGO_BIN_EXE_llmsrv")]),
        )
        .ok();
        let path = PathBuf::from(built.stdout.lines().last().unwrap());
        assert!(
            path.extension().is_some_and(|it| it == "deb"),
            "{}",
            path.display()
        );
        path
    })
}

/// Installs a package in a clean system, asks it, upgrades and removes it.
fn assert_lives_in_a_clean_system(package: &Path) {
    let clients = std::env::var_os("TEST_CLIENTS").map(PathBuf::from);
    let clients = clients.unwrap_or_else(|| root().join("target/test-clients"));
    let system = clients.join("debian");
    assert!(
        system.join("installed").exists(),
        "a clean Debian is missing; `tests/run` makes it"
    );
    let done = Output::of(
        Command::new(root().join("tests/packaging/chroot.sh"))
            .arg(package)
            .arg(system),
    )
    .ok();
    assert!(done.stdout.ends_with("upgraded and removed\n"), "{done:#?}");
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn the_debian_package_installs_in_a_clean_system_serves_and_is_purged() {
    assert_lives_in_a_clean_system(package());
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn the_rpm_installs_in_a_clean_system_serves_and_is_erased() {
    let sandbox = Sandbox::new();
    assert_lives_in_a_clean_system(&packed(&sandbox, "rpm", &stripped(&sandbox), "rpm"));
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn the_archive_installs_in_a_clean_system_serves_and_is_removed() {
    let sandbox = Sandbox::new();
    assert_lives_in_a_clean_system(&packed(&sandbox, "archive", &stripped(&sandbox), "archive"));
}

#[test]
fn lintian_finds_no_error_in_the_debian_package() {
    let package = package();
    // Its exit status is 2 when there is an error that is not overridden with a reason.
    let checked = Output::of(
        Command::new("lintian")
            .args([
                "--allow-root",
                "--fail-on",
                "error",
                "--tag-display-limit",
                "0",
            ])
            .arg(package),
    );
    assert_eq!(checked.code, 0, "{checked:#?}");
    assert!(!checked.stdout.contains("unused-override"), "{checked:#?}");
}

#[test]
fn every_script_passes_shellcheck() {
    let listed = Output::of(Command::new("git").args(["ls-files"]).current_dir(root())).ok();
    let scripts: Vec<&str> = listed
        .stdout
        .lines()
        .filter(|path| {
            let bytes = fs::read(root().join(path)).unwrap_or_default();
            let first = bytes
                .split(|byte| *byte == b'\n')
                .next()
                .unwrap_or_default();
            let first = String::from_utf8_lossy(first);
            first.starts_with("#!") && first.ends_with("sh")
        })
        .collect();
    for known in [
        "packaging/install.sh",
        "packaging/debian/postinst",
        "tests/run",
    ] {
        assert!(scripts.contains(&known), "{known}: {scripts:?}");
    }
    Output::of(
        Command::new("shellcheck")
            .args(&scripts)
            .current_dir(root()),
    )
    .ok();
    // Those of the other package have no first line: the system says which shell.
    let rpm = fs::read_dir(root().join("packaging/redhat")).unwrap();
    let rpm = rpm.map(|entry| entry.unwrap().path());
    Output::of(Command::new("shellcheck").args(["-s", "sh"]).args(rpm)).ok();
}

/// The program under test without what only debuggers read, which would be most of a package.
pub fn stripped(sandbox: &Sandbox) -> PathBuf {
    let path = sandbox.path().join("llmsrv");
    Output::of(
        Command::new("strip")
            .arg("-o")
            .arg(&path)
            .arg(env!("CARGO_BIN_EXE_llmsrv")),
    )
    .ok();
    path
}

/// Makes a package of the program with a script, and returns its file.
pub fn packed(sandbox: &Sandbox, script: &str, binary: &Path, out: &str) -> PathBuf {
    let mut command = Command::new(root().join("packaging").join(script));
    // npm compresses as it does.
    command.args((script != "npm").then_some("--fast"));
    command.arg("--binary").arg(binary).arg("--out");
    let done = Output::of(command.arg(sandbox.path().join(out))).ok();
    PathBuf::from(done.stdout.lines().last().unwrap())
}

/// Asks an installed program for its version and an answer.
fn assert_answers(sandbox: &Sandbox, program: &Path) {
    let ask = |args: &[&str]| {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(
                sandbox
                    .command()
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .args(args);
        Output::of(&mut command).ok().stdout
    };
    assert!(ask(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
    let answer = ask(&["run", "default", "hi"]);
    assert!(answer.len() > 10, "{answer:?}");
}

#[test]
fn the_wheel_puts_the_program_into_an_environment_and_takes_it_out() {
    let sandbox = Sandbox::new();
    let binary = stripped(&sandbox);
    let wheel = packed(&sandbox, "wheel", &binary, "one");
    let again = packed(&sandbox, "wheel", &binary, "two");
    assert!(fs::read(&wheel).unwrap() == fs::read(again).unwrap());

    let environment = sandbox.path().join("environment");
    Output::of(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )
    .ok();
    let pip = |args: &[&str]| {
        let mut command = Command::new(environment.join("bin/pip"));
        command.args(["--disable-pip-version-check", "--no-input"]);
        Output::of(command.args(args)).ok()
    };
    pip(&["install", "--no-index", wheel.to_str().unwrap()]);
    let program = environment.join("bin/llmsrv");
    assert_answers(&sandbox, &program);
    pip(&["uninstall", "--yes", "llmsrv"]);
    assert!(!program.exists());
}

/// Compiles a program with a linker, or with that of this system. It prints what it is told.
fn compiled(sandbox: &Sandbox, name: &str, linker: Option<&str>) -> PathBuf {
    // A thread, the time and an address are what libraries of C have changed.
    let text = "use std::{env, net::ToSocketAddrs, thread, time::Instant};\n\
        fn main() {\n\
        let told = thread::spawn(|| env::args().skip(1).collect::<Vec<_>>().join(\" \"));\n\
        let knows = (\"localhost\", 0).to_socket_addrs().is_ok();\n\
        println!(\"{} {}\", told.join().unwrap(), knows && Instant::now().elapsed().as_secs() < 60);\n\
        }\n";
    let source = sandbox.path().join("main.rs");
    fs::write(&source, text).unwrap();
    let program = sandbox.path().join(name);
    let mut command = Command::new("rustc");
    command.args(["-O", "--edition=2024", "-o"]).arg(&program);
    if let Some(linker) = linker {
        command.arg(format!("-Clinker={linker}"));
    }
    Output::of(command.arg(&source)).ok();
    program
}

/// Runs the script that builds for older systems.
fn portable(args: &[&str]) -> Output {
    Output::of(Command::new(root().join("packaging/portable")).args(args))
}

/// The compiler and linker for older systems with a processor.
fn linker(arch: &str) -> String {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    assert!(
        target.join("tools/zig/installed").exists(),
        "the portable compiler is missing; `packaging/portable --prepare` installs it"
    );
    let said = portable(&["--arch", arch, "--linker"]).ok().stdout;
    said.trim_end().to_owned()
}

#[test]
fn a_portable_program_runs_with_an_old_library_of_c() {
    let linker = linker("x86_64");
    let sandbox = Sandbox::new();
    let old = compiled(&sandbox, "old", Some(&linker));
    let checked = portable(&["--check", old.to_str().unwrap()]).ok();
    assert_eq!(checked.stdout, "--version true\nrun default Hello! true\n");
    let wheel = packed(&sandbox, "wheel", &old, "old-wheel");
    let name = wheel.file_name().unwrap().to_str().unwrap();
    assert!(name.ends_with("-manylinux_2_17_x86_64.whl"), "{name}");

    // What the compiler of this system links needs the library of this system.
    let new = compiled(&sandbox, "new", None);
    let refused = portable(&["--check", new.to_str().unwrap()]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("not for manylinux_2_17"),
        "{refused:?}"
    );
}

#[test]
fn portable_code_in_c_runs_on_both_processors() {
    let sandbox = Sandbox::new();
    let source = sandbox.path().join("main.c");
    // Newer libraries have these under newer names, or in another file.
    let text = "#include <pthread.h>\n#include <stdio.h>\n#include <string.h>\n#include <sys/stat.h>\n\
        static void *work(void *at) { memcpy(at, \"good\", 5); return at; }\n\
        int main(void) { char text[8]; void *out; pthread_t id; struct stat found;\n\
        if (stat(\"/\", &found) || pthread_create(&id, 0, work, text) || pthread_join(id, &out)) return 1;\n\
        return puts(out) < 0; }\n";
    fs::write(&source, text).unwrap();
    for arch in ["x86_64", "aarch64"] {
        let program = sandbox.path().join(arch);
        let mut compile = Command::new(linker(arch));
        // Callers name the target as Rust does.
        compile.arg(format!("--target={arch}-unknown-linux-gnu"));
        compile.args(["-O2", "-o"]).arg(&program).arg(&source);
        Output::of(&mut compile).ok();
        let checked = portable(&["--check", program.to_str().unwrap()]).ok();
        assert_eq!(checked.stdout, "good\ngood\n", "{arch}");
        let wheel = packed(&sandbox, "wheel", &program, "wheels");
        let name = wheel.file_name().unwrap().to_str().unwrap();
        let tag = format!("-manylinux_2_17_{arch}.whl");
        assert!(name.ends_with(&tag), "{name}");
    }
}

#[test]
fn the_npm_package_puts_the_program_into_a_folder() {
    let sandbox = Sandbox::new();
    let package = packed(&sandbox, "npm", &stripped(&sandbox), "out");
    let folder = sandbox.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let npm = |args: &[&str]| {
        let mut command = Command::new("npm");
        command
            .args(["--offline", "--no-audit", "--no-fund"])
            .args(args);
        Output::of(command.current_dir(&folder).env("HOME", sandbox.path())).ok()
    };
    npm(&["install", package.to_str().unwrap()]);
    let program = folder.join("node_modules/.bin/llmsrv");
    assert_answers(&sandbox, &program);
    let file = package.file_stem().unwrap().to_str().unwrap();
    let (name, _) = file.rsplit_once('-').unwrap();
    npm(&["uninstall", name]);
    assert!(!program.exists());
}

#[test]
fn completions_know_the_models_in_real_shells() {
    let sandbox = Sandbox::new();
    for name in ["mine", "qwen:1b", "qwen:2b"] {
        sandbox.run(&["cp", "default", name]).ok();
    }
    let out = sandbox.path().join("generated");
    sandbox
        .run(&["generate", "--out", out.to_str().unwrap()])
        .ok();
    let bin = sandbox.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_llmsrv"), bin.join("llmsrv")).unwrap();
    std::os::unix::fs::symlink("llmsrv", bin.join("logkit")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let complete = |shell: &str, file: &str, line: &str, expected: &str| {
        let program = sandbox.command();
        let mut command = Command::new("python3");
        command
            .env_clear()
            .envs(
                program
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("PATH", &path)
            .current_dir(sandbox.path())
            .arg(root().join("tests/packaging/complete.py"))
            .arg(shell)
            .arg(out.join("completions").join(file))
            .args([line, expected]);
        Output::of(&mut command).ok().stdout
    };
    for (shell, file) in [
        ("bash", "llmsrv.bash"),
        ("zsh", "_llmsrv"),
        ("fish", "llmsrv.fish"),
    ] {
        for (line, expected) in [
            ("llmsrv show mi", "mine"),
            ("llmsrv show qw", "2b"),
            // A colon breaks words in bash.
            ("llmsrv show qwen:1", "qwen:1b"),
            ("llmsrv test --model=qwen:2", "qwen:2b"),
            ("llmsrv install-m", "install-model"),
        ] {
            let seen = complete(shell, file, line, expected);
            assert!(!seen.contains("qwen:qwen"), "{shell}: {line}: {seen}");
        }
    }
    complete("bash", "logkit.bash", "logkit expo", "logkit export");
    // These shells are not in Debian; their scripts ask the program, too.
    for file in ["llmsrv.elv", "_llmsrv.ps1"] {
        let text = fs::read_to_string(out.join("completions").join(file)).unwrap();
        assert!(
            text.contains("COMPLETE") && text.contains("llmsrv"),
            "{file}: {text}"
        );
    }
}

#[test]
fn installing_by_script_can_be_repeated_and_undone() {
    let sandbox = Sandbox::new();
    let dest = sandbox.path().join("dest");
    let script = |name: &str, args: &[&str]| {
        // Whatever shell `sh` is.
        let mut command = Command::new("sh");
        command
            .arg(root().join("packaging").join(name))
            .env("DESTDIR", &dest)
            .env("HOME", sandbox.path())
            .args(args);
        Output::of(&mut command)
    };
    let install = ["--binary", env!("CARGO_BIN_EXE_llmsrv")];
    let dry = script("install.sh", &[install.as_slice(), &["--dry-run"]].concat()).ok();
    assert!(dry.stdout.contains("would run: install"), "{dry:?}");
    assert!(!dest.exists());

    script("install.sh", &install).ok();
    let installed = tree(&dest);
    for path in [
        "usr/local/bin/llmsrv",
        "usr/local/bin/logkit",
        "usr/local/share/man/man1/llmsrv-serve.1",
        "usr/local/share/bash-completion/completions/llmsrv",
        "usr/local/share/zsh/site-functions/_logkit",
        "usr/local/share/llmsrv/scripts/llmsrv.sh",
        "etc/systemd/system/llmsrv-network.service",
        "etc/llmsrv/llmsrv.env",
    ] {
        assert!(installed.contains(path), "{path}: {installed:?}");
    }
    let unit = fs::read_to_string(dest.join("etc/systemd/system/llmsrv-network.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/llmsrv "), "{unit}");
    let version = Output::of(Command::new(dest.join("usr/local/bin/logkit")).arg("version")).ok();
    assert!(version.stdout.contains("logkit"), "{version:?}");

    // Again: the settings stay, and nothing is there twice.
    let env = dest.join("etc/llmsrv/llmsrv.env");
    fs::write(&env, "LLMSRV_KEEP_ALIVE=1h\n").unwrap();
    script("install.sh", &install).ok();
    assert_eq!(tree(&dest), installed);
    assert_eq!(fs::read_to_string(&env).unwrap(), "LLMSRV_KEEP_ALIVE=1h\n");

    let models = dest.join("var/lib/llmsrv/models/blobs/sha256-0");
    fs::create_dir_all(models.parent().unwrap()).unwrap();
    fs::write(&models, "weights").unwrap();
    let dry = script("uninstall.sh", &["--dry-run"]).ok();
    assert!(dry.stdout.contains("would run: rm"), "{dry:?}");
    assert!(dest.join("usr/local/bin/llmsrv").exists());
    script("uninstall.sh", &[]).ok();
    let left: Vec<String> = tree(&dest).into_iter().collect();
    assert_eq!(
        left,
        [
            "etc/llmsrv/llmsrv.env",
            "var/lib/llmsrv/models/blobs/sha256-0"
        ]
    );
    let none = script("uninstall.sh", &[]).ok();
    assert!(none.stdout.contains("nothing"), "{none:?}");

    let user = script("install.sh", &[install.as_slice(), &["--user"]].concat()).ok();
    let home = dest.join(sandbox.path().strip_prefix("/").unwrap());
    assert!(home.join(".local/bin/llmsrv").exists(), "{user:?}");
    assert!(
        !dest
            .join("etc/systemd/system/llmsrv-network.service")
            .exists()
    );
    script("uninstall.sh", &["--user"]).ok();
    assert!(!home.join(".local/bin/llmsrv").exists());

    for args in [&["--nonsense"][..], &["--prefix"], &["--prefix", "here"]] {
        let refused = script("install.sh", args);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("error:"), "{refused:?}");
    }
}

#[test]
fn an_archive_is_installed_from_its_file_and_from_its_folder() {
    let sandbox = Sandbox::new();
    let binary = stripped(&sandbox);
    let archive = packed(&sandbox, "archive", &binary, "one");
    let again = packed(&sandbox, "archive", &binary, "two");
    assert!(fs::read(&archive).unwrap() == fs::read(again).unwrap());

    let prefix = sandbox.path().join("prefix");
    let install = |script: &Path, args: &[&str]| {
        let mut command = Command::new(script);
        command.env("HOME", sandbox.path()).args(args);
        Output::of(command.args(["--no-service", "--prefix"]).arg(&prefix))
    };
    let uninstall = prefix.join("share/llmsrv/uninstall.sh");
    let remove = |script: &Path| Output::of(Command::new(script).arg("--prefix").arg(&prefix)).ok();
    let script = root().join("packaging/install.sh");
    install(&script, &[archive.to_str().unwrap()]).ok();
    assert_answers(&sandbox, &prefix.join("bin/llmsrv"));
    remove(&uninstall);
    assert!(!prefix.exists(), "the folders were made by the script");

    let unpacked = sandbox.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    Output::of(
        Command::new("tar")
            .current_dir(&unpacked)
            .arg("xzf")
            .arg(&archive),
    )
    .ok();
    let folder = fs::read_dir(&unpacked)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    // A program as a download leaves it, without the right to run, is taken as well.
    Output::of(Command::new("chmod").arg("-x").arg(folder.join("llmsrv"))).ok();
    fs::create_dir_all(prefix.join("bin")).unwrap();
    for args in [&[][..], &[folder.join("llmsrv").to_str().unwrap()]] {
        let refused = install(&folder.join("install.sh"), args);
        assert_eq!(refused.code, i32::from(args.is_empty()), "{refused:?}");
    }
    remove(&uninstall);
    assert_eq!(
        tree(sandbox.path().join("prefix").as_path()),
        BTreeSet::new()
    );
    assert!(prefix.join("bin").exists(), "this folder was there before");

    // What is no archive, a part of one, and an archive of something else.
    let whole = fs::read(&archive).unwrap();
    let other = sandbox.path().join("other.tar.gz");
    for bytes in [&b"text"[..], &whole[..whole.len() / 2]] {
        fs::write(&other, bytes).unwrap();
        let refused = install(&script, &[other.to_str().unwrap()]);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("error: "), "{refused:?}");
    }
    fs::remove_file(&other).unwrap();
    Output::of(
        Command::new("tar")
            .arg("czf")
            .arg(&other)
            .arg("-C")
            .arg(root())
            .arg("man"),
    )
    .ok();
    let refused = install(&script, &[other.to_str().unwrap()]);
    assert!(
        refused.stderr.contains("is no archive of llmsrv"),
        "{refused:?}"
    );
    assert_eq!(tree(&prefix), BTreeSet::new());
}

/// Files below a folder, without folders.
fn tree(folder: &Path) -> BTreeSet<String> {
    let listed = Output::of(
        Command::new("find")
            .arg(folder)
            .args(["!", "-type", "d", "-printf", "%P\n"]),
    )
    .ok();
    listed.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn thin_scripts_call_the_program_beside_them_or_on_the_path() {
    let sandbox = Sandbox::new();
    let scripts = root().join("packaging/scripts");
    let (beside, on_path) = (sandbox.path().join("beside"), sandbox.path().join("path"));
    for folder in [&beside, &on_path] {
        fs::create_dir(folder).unwrap();
        let program = folder.join("llmsrv");
        let name = folder.file_name().unwrap().to_str().unwrap();
        fs::write(&program, format!("#!/bin/sh\necho {name} \"$@\"\nexit 7\n")).unwrap();
        Output::of(Command::new("chmod").arg("755").arg(&program)).ok();
    }
    for (script, calls) in [
        ("llmsrv.sh", "net"),
        ("ssh.sh", "ssh"),
        ("monitor.sh", "monitor"),
        ("test.sh", "test"),
        ("testgpu.sh", "testgpu"),
        ("testnpu.sh", "testnpu"),
    ] {
        fs::copy(scripts.join(script), beside.join(script)).unwrap();
        let path = format!("{}:/usr/bin:/bin", on_path.display());
        for (folder, name) in [(&beside, "beside"), (&scripts, "path")] {
            let called = Output::of(
                Command::new(folder.join(script))
                    .env("PATH", &path)
                    .args(["-x", "a b"]),
            );
            assert_eq!(
                called.stdout,
                format!("{name} {calls} -x a b\n"),
                "{script}"
            );
            assert_eq!(called.code, 7, "the status is the program's");
        }
    }
    let load = Output::of(&mut Command::new(beside.join("test.sh")));
    assert_eq!(
        load.stdout,
        "beside test --cpu 4 --mem 2GB --disk --duration 60s\n"
    );
    let none = Output::of(Command::new(scripts.join("ssh.sh")).env("PATH", "/usr/bin:/bin"));
    assert_eq!(none.code, 127, "{none:?}");
}

#[test]
fn both_packages_hold_the_same_files() {
    let sandbox = Sandbox::new();
    let rpm = packed(&sandbox, "rpm", &stripped(&sandbox), "rpm");
    let listed = |program: &str, args: &[&str], package: &Path| {
        Output::of(Command::new(program).args(args).arg(package))
            .ok()
            .stdout
    };
    // Each line of the one ends with ` ./usr/bin/llmsrv`, with ` -> ` and a place after it where that is a link.
    let deb: BTreeSet<String> = listed("dpkg-deb", &["--contents"], package())
        .lines()
        .filter_map(|line| line.split_once(" ./").map(|(_, path)| path))
        .filter(|path| !path.ends_with('/'))
        .map(|path| path.split(" -> ").next().unwrap())
        // Debian's own: compressed pages, its name for a folder, and what only its packages have.
        .map(|path| {
            path.trim_end_matches(".gz")
                .replace("vendor-completions", "site-functions")
        })
        .filter(|path| !path.contains("lintian") && !path.contains("/doc/llmsrv/c"))
        .collect();
    let rpm: BTreeSet<String> = listed(
        "rpm",
        &["-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\\n]"],
        &rpm,
    )
    .lines()
    .filter(|line| !line.starts_with('d'))
    .map(|line| line.split_once(" /").unwrap().1.to_owned())
    .collect();
    assert_eq!(deb, rpm);
    assert!(deb.len() > 50, "{deb:?}");
}
