//! GPUs and NPUs of this machine.

use std::{path::PathBuf, time::Duration};

use clap::{Args, builder::PossibleValuesParser};
use llmsrv_devices::{testgpu, testnpu};

/// What `testgpu` is for.
pub const GPU_ABOUT: &str = "Test the GPUs of this machine\n\n\
    Says which GPUs there are, whether you may use them, and whether they compute what they should: kernels run \
    through OpenCL, Vulkan, CUDA and HIP, whatever of these is installed, and every result is compared with that of \
    the CPU. Drivers run in processes of their own, so that one that crashes or hangs is a failed test. Nothing is \
    changed, unless --fix-permissions --yes asks for it.\n\n\
    Drivers that compute on the CPU (PoCL, llvmpipe) are tested like others; the table says CPU.";

/// What `testnpu` is for.
pub const NPU_ABOUT: &str = "Test the NPUs of this machine\n\n\
    Finds NPUs of Intel, AMD, Rockchip, Qualcomm, Hailo and Coral, their drivers, libraries, temperatures and clocks. \
    --model checks an ONNX model and runs it with inputs of zeros: on the NPU, if ONNX Runtime has what that needs, \
    and on the CPU to compare. What the CPU computes is told as such and never counted as a test of the NPU.";

/// Arguments of `testgpu`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv testgpu                                      Everything\n  \
    llmsrv testgpu --list                               The categories\n  \
    llmsrv testgpu --category cuda --category bandwidth  Some of them\n  \
    llmsrv testgpu --json | jq '.checks[] | select(.outcome == \"fail\")'\n  \
    llmsrv testgpu --fix-permissions                    How to be allowed to use the GPUs\n\n\
    Exit status: 0 = all tests that could be made passed, 1 = some failed, 2 = wrong use, 3 = there is no GPU
    (drivers that compute on the CPU are none).")]
pub struct TestgpuArgs {
    /// Only this category; can be repeated
    #[arg(short, long, value_name = "NAME",
        value_parser = PossibleValuesParser::new(testgpu::CATEGORIES.iter().map(|(name, _)| *name)))]
    pub category: Vec<String>,
    #[command(flatten)]
    pub common: DeviceArgs,
    /// Print the commands that let you use the devices: groups, and rules with mode 0660
    #[arg(long)]
    pub fix_permissions: bool,
    /// With --fix-permissions: run them
    #[arg(long, requires = "fix_permissions", conflicts_with = "root")]
    pub yes: bool,
}

/// Arguments of `testnpu`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv testnpu                                      Everything\n  \
    llmsrv testnpu --category driver                    One category\n  \
    llmsrv testnpu --model model.onnx --runtime venv/lib/libonnxruntime.so\n\n\
    Exit status: 0 = all tests that could be made passed, 1 = some failed, 2 = wrong use, 3 = there is no NPU.")]
pub struct TestnpuArgs {
    /// Only this category; can be repeated
    #[arg(short, long, value_name = "NAME",
        value_parser = PossibleValuesParser::new(testnpu::CATEGORIES.iter().map(|(name, _)| *name)))]
    pub category: Vec<String>,
    #[command(flatten)]
    pub common: DeviceArgs,
    /// Check this model (.onnx) and run it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub model: Option<PathBuf>,
    /// Library of ONNX Runtime [default: the setting, or the one in the usual folders]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub runtime: Option<PathBuf>,
}

/// Arguments of both.
#[derive(Args, Debug)]
pub struct DeviceArgs {
    /// List the categories
    #[arg(long)]
    pub list: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Who wants to use the devices [default: you]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Seconds after which a driver that does not answer counts as hung
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// Read sys, dev, proc and etc in this folder, a copy of those of another machine
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub root: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "this is not a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("from 0.1 to 3600".into())
    }
}

/// Arguments of `device-worker`.
#[derive(Args, Debug)]
pub struct DeviceWorkerArgs {
    /// What to do, as JSON
    pub job: String,
}

/// Arguments of `gpu-worker`.
#[derive(Args, Debug)]
pub struct GpuWorkerArgs {
    /// Which log lines to write
    pub log: String,
    /// Write them as JSON
    #[arg(long)]
    pub log_json: bool,
}
