//! Against a real server, started for the test. Without one on this machine the tests say so and end,
//! unless `tests/run` runs them, which installs it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use logkit::{Entry, Logger, PostgresSink, Sink};

use super::{error, eventually};

/// A server in a temporary folder; stopped when dropped.
struct Server {
    folder: tempfile::TempDir,
    bin: PathBuf,
    port: u16,
}

impl Server {
    fn start() -> Server {
        let bin = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .filter_map(|version| Some(version.ok()?.path().join("bin")))
            .find(|bin| bin.join("initdb").exists());
        let bin = bin.expect("PostgreSQL is missing, which `tests/run` installs");
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        };
        let server = Server {
            folder: tempfile::tempdir().unwrap(),
            bin,
            port,
        };
        let data = server.data();
        std::fs::create_dir(&data).unwrap();
        if is_root() {
            // The server refuses to run as root.
            run(Command::new("chown")
                .args(["-R", "postgres"])
                .arg(server.folder.path()));
        }
        server.tool(
            "initdb",
            &[
                "-D",
                &data.display().to_string(),
                "-U",
                "tester",
                "-A",
                "trust",
                "-N",
            ],
        );
        server.up();
        server
    }

    fn up(&self) {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -p {} -k '' -c fsync=off",
            self.port
        );
        let data = self.data().display().to_string();
        let log = self.folder.path().join("data/log").display().to_string();
        self.tool(
            "pg_ctl",
            &["-D", &data, "-w", "-l", &log, "-o", &options, "start"],
        );
    }

    /// Gives the server a certificate; new connections may be encrypted then. Returns the file of the
    /// authority that signed it.
    fn encrypt(&self) -> PathBuf {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_certificate = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let data = self.data();
        std::fs::write(data.join("server.crt"), certificate.pem()).unwrap();
        let key_file = data.join("server.key");
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        run(Command::new("chmod").arg("600").arg(&key_file));
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&key_file));
        }
        self.sql("ALTER SYSTEM SET ssl = on");
        self.down();
        self.up();
        let trusted = self.folder.path().join("authority.pem");
        std::fs::write(&trusted, authority_certificate.pem()).unwrap();
        trusted
    }

    fn down(&self) {
        let data = self.data().display().to_string();
        self.tool("pg_ctl", &["-D", &data, "-m", "immediate", "stop"]);
    }

    fn tool(&self, name: &str, args: &[&str]) {
        let path = self.bin.join(name);
        if is_root() {
            run(Command::new("setpriv")
                .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
                .arg(path)
                .args(args));
        } else {
            run(Command::new(path).args(args));
        }
    }

    fn data(&self) -> PathBuf {
        Path::new(self.folder.path()).join("data")
    }

    fn url(&self) -> String {
        format!("postgres://tester@127.0.0.1:{}/postgres", self.port)
    }

    /// What a statement gives, fields apart by `|`.
    fn sql(&self, statement: &str) -> String {
        let output = Command::new(self.bin.join("psql"))
            .args([
                "-X",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                &self.url(),
                "-c",
                statement,
            ])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.down();
    }
}

fn run(command: &mut Command) {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .status()
        .unwrap();
    assert!(status.success(), "{command:?}");
}

#[test]
fn entries_reach_the_table_and_survive_a_restart_of_the_server() {
    let server = Server::start();
    // A table of an older version lacks columns.
    server.sql("CREATE TABLE logs (id bigserial PRIMARY KEY, timestamp text, level text)");
    let sink = PostgresSink::new(&server.url()).unwrap();
    let counts = sink.counts();
    let logger = Logger::builder().sink(sink).build();
    let odd = "quote ' back\\slash { } , \"x\" \u{1F6A8} NULL\nnew\0line";
    logger.emit(error("odd", odd));
    for n in 0..2000 {
        logger.emit(error(&format!("f{n}"), "no"));
    }
    eventually("delivered", || counts.get().delivered == 2001);
    assert_eq!(
        server.sql(
            "SELECT exception, duration_ms, args, extra, level FROM logs WHERE function_name = 'odd'"
        ),
        format!("{}|1.5|(3, 'x')||ERROR", odd.replace('\0', "\u{2400}"))
    );

    server.down();
    let retries = counts.get().retries;
    for n in 0..100 {
        logger.emit(error(&format!("later{n}"), "no"));
    }
    eventually("tried in vain", || counts.get().retries > retries);
    server.up();
    eventually("delivered after the restart", || {
        counts.get().delivered == 2101
    });
    logger.close();
    assert_eq!(server.sql("SELECT count(*) FROM logs"), "2101");
}

#[test]
fn a_connection_may_be_encrypted_to_a_server_that_is_trusted() {
    let server = Server::start();
    let encrypted = format!("{}?sslmode=require", server.url());
    // A server that cannot is told, and nothing is sent in the open.
    let refused = |url: &str| {
        let mut sink = PostgresSink::new(url).unwrap();
        sink.write_batch(&[error("f", "no")]).unwrap();
        sink.flush().unwrap_err().to_string()
    };
    let told = refused(&encrypted);
    assert!(told.to_lowercase().contains("tls"), "{told}");

    let trusted = server.encrypt();
    let told = refused(&encrypted);
    assert!(told.to_lowercase().contains("certificate"), "{told}");
    let url = format!("{encrypted}&sslrootcert={}", trusted.display());
    let mut sink = PostgresSink::new(&url).unwrap();
    sink.write_batch(&[error("f", "no")]).unwrap();
    sink.flush().unwrap();
    assert_eq!(sink.counts().get().delivered, 1);
    assert_eq!(
        server.sql(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
             WHERE application_name = 'logkit'"
        ),
        "t"
    );
    sink.close().unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM logs"), "1");
}

#[test]
fn nobody_there_is_told_and_counted() {
    let mut sink = PostgresSink::new("postgres://u:SECRET@127.0.0.1:9/d").unwrap();
    sink.write_batch(&[Entry::default()]).unwrap();
    assert!(sink.flush().is_err());
    let told = sink.close().unwrap_err().to_string();
    assert!(
        told.contains("1 entries lost") && !told.contains("SECRET"),
        "{told}"
    );
}

fn is_root() -> bool {
    let owner = Command::new("id").arg("-u").output().unwrap().stdout;
    owner.starts_with(b"0\n")
}
