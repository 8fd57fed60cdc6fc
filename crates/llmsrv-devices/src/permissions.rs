//! Who may use the device nodes of GPUs and NPUs, and the least that must change for a user who may not.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    process::{Command, ExitStatus, Stdio},
};

use nix::unistd::{Gid, Uid, User};
use serde::Serialize;

use crate::Sysroot;

/// A user as the kernel sees one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Ids of all groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// The user who runs this program, with the groups of this session.
    pub fn current() -> Identity {
        let uid = Uid::effective();
        let mut groups = groups_of_session();
        groups.push(Gid::effective().as_raw());
        let user = User::from_uid(uid).ok().flatten();
        Identity {
            name: user.map_or_else(|| uid.to_string(), |user| user.name),
            uid: uid.as_raw(),
            groups,
        }
    }

    /// A user of this machine by name, with the groups of a new session.
    pub fn named(name: &str) -> Option<Identity> {
        let user = User::from_name(name).ok().flatten()?;
        Some(Identity {
            name: name.to_owned(),
            uid: user.uid.as_raw(),
            groups: groups_of(&user),
        })
    }
}

#[cfg(not(target_vendor = "apple"))]
fn groups_of_session() -> Vec<u32> {
    let groups = nix::unistd::getgroups().unwrap_or_default();
    groups.iter().map(|gid| gid.as_raw()).collect()
}

#[cfg(not(target_vendor = "apple"))]
fn groups_of(user: &User) -> Vec<u32> {
    let name = std::ffi::CString::new(user.name.as_str()).unwrap_or_default();
    let groups = nix::unistd::getgrouplist(&name, user.gid).unwrap_or_default();
    groups.iter().map(|gid| gid.as_raw()).collect()
}

// Systems of Apple have no such nodes.
#[cfg(target_vendor = "apple")]
fn groups_of_session() -> Vec<u32> {
    Vec::new()
}

#[cfg(target_vendor = "apple")]
fn groups_of(user: &User) -> Vec<u32> {
    vec![user.gid.as_raw()]
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Such as `/dev/dri/renderD128`.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Node {
    /// Tells whether a user may read and write it.
    pub fn allows(&self, user: &Identity) -> bool {
        let bits = match () {
            () if user.uid == 0 => return true,
            () if user.uid == self.uid => self.mode >> 6,
            () if user.groups.contains(&self.gid) => self.mode >> 3,
            () => self.mode,
        };
        bits & 6 == 6
    }

    /// Tells whether every user of the machine may write it.
    pub fn is_open_to_all(&self) -> bool {
        self.mode & 2 != 0
    }

    /// Tells whether a GPU is behind it.
    pub fn is_gpu(&self) -> bool {
        let begins = [
            "/dev/dri/",
            "/dev/kfd",
            "/dev/nvidia",
            "/dev/mali",
            "/dev/dxg",
        ];
        begins.iter().any(|begin| self.path.starts_with(begin))
    }

    fn is_nvidia(&self) -> bool {
        self.path.starts_with("/dev/nvidia")
    }
}

/// Lists the nodes through which programs compute.
pub fn nodes(root: &Sysroot) -> Vec<Node> {
    let mut found = Vec::new();
    for (folder, wanted) in NODES {
        for name in root.list(folder) {
            let path = format!("{folder}/{name}");
            let matches = wanted.iter().any(|begin| {
                name.strip_prefix(begin)
                    .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
            });
            let metadata = fs::metadata(root.path(&path))
                .ok()
                .filter(|metadata| matches && !metadata.is_dir());
            found.extend(metadata.map(|metadata| Node {
                path: format!("/{path}"),
                mode: metadata.mode() & 0o777,
                uid: metadata.uid(),
                gid: metadata.gid(),
            }));
        }
    }
    found
}

/// Folders, and names in them that end with a number or with nothing more.
const NODES: &[(&str, &[&str])] = &[
    ("dev/dri", &["renderD"]),
    ("dev/accel", &["accel"]),
    (
        "dev",
        &[
            "kfd",
            "nvidia",
            "nvidiactl",
            "nvidia-uvm",
            "mali",
            "dxg",
            "rknpu",
            "hailo",
            "apex_",
        ],
    ),
];

/// Something to be done as root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The command.
    pub command: Vec<String>,
    /// What it reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

impl Step {
    fn new<const N: usize>(command: [&str; N]) -> Step {
        Step {
            command: command.map(str::to_owned).to_vec(),
            input: None,
        }
    }

    fn write(path: &str, text: String) -> Step {
        Step {
            input: Some(text),
            ..Step::new(["tee", path])
        }
    }

    /// The line for a shell.
    pub fn line(&self, sudo: bool) -> String {
        let sudo = if sudo { "sudo " } else { "" };
        let command = self.command.join(" ");
        match &self.input {
            Some(text) => format!("printf '%s\\n' '{text}' | {sudo}{command} >/dev/null"),
            None => format!("{sudo}{command}"),
        }
    }

    /// Does it.
    pub fn run(&self, sudo: bool) -> io::Result<ExitStatus> {
        let mut words = sudo
            .then_some("sudo")
            .into_iter()
            .chain(self.command.iter().map(String::as_str));
        let mut child = Command::new(words.next().unwrap_or_default())
            .args(words)
            .stdin(if self.input.is_some() {
                Stdio::piped()
            } else {
                Stdio::inherit()
            })
            .stdout(Stdio::null())
            .spawn()?;
        if let (Some(text), Some(mut stdin)) = (&self.input, child.stdin.take()) {
            writeln!(stdin, "{text}")?;
        }
        child.wait()
    }
}

/// The least that lets a user use all nodes: groups, and modes of 0660 where the group of a node has no rights.
/// No node is opened to all users.
pub fn steps(root: &Sysroot, nodes: &[Node], user: &Identity) -> Vec<Step> {
    let groups = Groups::read(root);
    let device_group = if groups.id("render").is_some() {
        "render"
    } else {
        "video"
    };
    let (mut rules, mut join) = (Vec::new(), Vec::new());
    let mut nvidia = false;
    for node in nodes.iter().filter(|node| !node.allows(user)) {
        let group = groups
            .name(node.gid)
            .filter(|_| node.gid != 0 && node.mode & 0o060 == 0o060);
        let group = match group {
            Some(group) => group,
            None if node.is_nvidia() => {
                nvidia = true;
                device_group
            }
            None => {
                let name = node.path.rsplit('/').next().unwrap_or_default();
                let pattern = format!("{}*", name.trim_end_matches(|c: char| c.is_ascii_digit()));
                let pattern = if pattern == format!("{name}*") {
                    name
                } else {
                    &pattern
                };
                rules.push(format!(
                    "KERNEL==\"{pattern}\", GROUP=\"{device_group}\", MODE=\"0660\""
                ));
                device_group
            }
        };
        join.push(group.to_owned());
    }
    rules.sort();
    rules.dedup();
    join.sort();
    join.dedup();
    let mut steps = Vec::new();
    if !rules.is_empty() {
        steps.push(Step::write(
            "/etc/udev/rules.d/70-llmsrv-devices.rules",
            rules.join("\n"),
        ));
        steps.push(Step::new(["udevadm", "control", "--reload"]));
        steps.push(Step::new(["udevadm", "trigger"]));
    }
    if nvidia && let Some(id) = groups.id(device_group) {
        // The module makes its nodes itself, at the next start.
        let options = format!("options nvidia NVreg_DeviceFileGID={id} NVreg_DeviceFileMode=0660");
        steps.push(Step::write("/etc/modprobe.d/llmsrv-nvidia.conf", options));
    }
    // A user who has joined already needs a new session, and no step.
    let member = |group: &String| groups.id(group).is_some_and(|id| user.groups.contains(&id));
    join.retain(|group| !member(group));
    if !join.is_empty() {
        steps.push(Step::new(["usermod", "-aG", &join.join(","), &user.name]));
    }
    steps
}

/// The groups of `/etc/group`: devices belong to none from elsewhere.
struct Groups(Vec<(String, u32)>);

impl Groups {
    fn read(root: &Sysroot) -> Groups {
        let text = root.read("etc/group").unwrap_or_default();
        let group = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            Some((name, fields.nth(1)?.parse().ok()?))
        };
        Groups(text.lines().filter_map(group).collect())
    }

    fn name(&self, id: u32) -> Option<&str> {
        self.0
            .iter()
            .find(|(_, found)| *found == id)
            .map(|(name, _)| name.as_str())
    }

    fn id(&self, name: &str) -> Option<u32> {
        self.0
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(path: &str, mode: u32, gid: u32) -> Node {
        Node {
            path: path.into(),
            mode,
            uid: 0,
            gid,
        }
    }

    fn user(groups: &[u32]) -> Identity {
        Identity {
            name: "ada".into(),
            uid: 1000,
            groups: groups.to_vec(),
        }
    }

    fn root() -> (tempfile::TempDir, Sysroot) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(
            folder.path().join("etc/group"),
            "root:x:0:\nvideo:x:44:\nbroken\nrender:x:105:\n",
        )
        .unwrap();
        let root = Sysroot::new(folder.path());
        (folder, root)
    }

    #[test]
    fn a_user_joins_the_group_of_the_node() {
        let (_folder, root) = root();
        let nodes = [
            node("/dev/dri/renderD128", 0o660, 105),
            node("/dev/kfd", 0o660, 44),
        ];
        let lines: Vec<String> = steps(&root, &nodes, &user(&[1000]))
            .iter()
            .map(|step| step.line(true))
            .collect();
        assert_eq!(lines, ["sudo usermod -aG render,video ada"]);
        assert_eq!(steps(&root, &nodes, &user(&[44, 105])), []);
    }

    #[test]
    fn a_node_whose_group_has_no_rights_gets_a_rule_and_never_opens_to_all() {
        let (_folder, root) = root();
        let nodes = [
            node("/dev/dri/renderD128", 0o600, 0),
            node("/dev/dri/renderD129", 0o600, 0),
            node("/dev/nvidia0", 0o660, 0),
        ];
        let lines: Vec<String> = steps(&root, &nodes, &user(&[1000]))
            .iter()
            .map(|step| step.line(false))
            .collect();
        assert_eq!(lines[0].matches("renderD").count(), 1, "{lines:?}");
        assert!(
            lines[0].contains(r#"KERNEL=="renderD*", GROUP="render", MODE="0660""#),
            "{lines:?}"
        );
        assert!(
            lines
                .iter()
                .any(|line| line.contains("NVreg_DeviceFileGID=105 NVreg_DeviceFileMode=0660"))
        );
        assert_eq!(lines.last().unwrap(), "usermod -aG render ada");
        assert!(lines.iter().all(|line| !line.contains("666")));
    }

    #[test]
    fn a_step_writes_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rule");
        let step = Step::write(file.to_str().unwrap(), "a rule".into());
        assert!(step.run(false).unwrap().success());
        assert_eq!(fs::read_to_string(file).unwrap(), "a rule\n");
    }

    proptest! {
        /// After the steps, the user is in a group that every node he could not use will belong to.
        #[test]
        fn nothing_is_done_for_those_who_may_already(mode in 0_u32..0o1000, gid in 0_u32..200, groups: Vec<u32>) {
            let (_folder, root) = root();
            let (nodes, user) = ([node("/dev/kfd", mode, gid)], user(&groups));
            let steps = steps(&root, &nodes, &user);
            if nodes[0].allows(&user) {
                prop_assert!(steps.is_empty());
            }
            for step in &steps {
                prop_assert!(!step.line(true).contains("chmod"), "{:?}", step);
            }
        }
    }
}
