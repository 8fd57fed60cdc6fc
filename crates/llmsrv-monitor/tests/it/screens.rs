//! What is drawn, at all sizes.

use std::time::Duration;

use llmsrv_monitor::{
    Accelerator, AcceleratorKind, Core, Cpu, Disk, Host, Look, Memory, Model, Network, Problem,
    Sample, Sensor, Server, State, Temperature, draw,
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::{Color, Modifier},
};

/// The figures of a machine that works, at one of a hundred moments.
fn sample(moment: u32) -> Sample {
    let wave = f64::from(moment % 40) / 40.0;
    let percent = 10.0 + 80.0 * wave;
    let rate = 12_000_000 * u64::from(moment % 7);
    Sample {
        timestamp_ms: 1,
        interval_seconds: 1.0,
        host: Host {
            name: Some("workbench".into()),
            uptime_seconds: Some(273_600),
            load_average: Some([1.5, 1.25, 0.75]),
        },
        cpu: Some(Cpu {
            percent: Some(percent),
            cores: (0..8)
                .map(|core| Core {
                    core,
                    percent: Some(f64::from(core) * 14.0),
                })
                .collect(),
        }),
        memory: Some(Memory {
            used_bytes: 4_096_000_000,
            total_bytes: 16_384_000_000,
            percent: Some(25.0),
        }),
        swap: Some(Memory {
            used_bytes: 1_600_000_000,
            total_bytes: 2_000_000_000,
            percent: Some(80.0),
        }),
        temperature: Some(Temperature {
            max_celsius: 40.0 + 35.0 * wave,
            sensors: vec![
                Sensor {
                    name: "x86_pkg_temp".into(),
                    source: "thermal_zone0".into(),
                    celsius: 40.0 + 35.0 * wave,
                },
                Sensor {
                    name: "nvme Composite".into(),
                    source: "hwmon1/temp1".into(),
                    celsius: 38.9,
                },
            ],
        }),
        disk: Some(Disk {
            read_bytes_per_second: rate,
            write_bytes_per_second: 30_000,
            devices: Vec::new(),
        }),
        network: Some(Network {
            receive_bytes_per_second: 1_500_000,
            transmit_bytes_per_second: rate / 30,
            interfaces: Vec::new(),
        }),
        accelerators: vec![Accelerator {
            kind: AcceleratorKind::Gpu,
            id: "card0".into(),
            name: "AMD GPU".into(),
            driver: Some("amdgpu".into()),
            percent: Some(100.0 - percent),
            memory_used_bytes: Some(4_000_000_000),
            memory_total_bytes: Some(16_000_000_000),
            frequency_mhz: None,
            max_frequency_mhz: None,
            celsius: Some(66.0),
        }],
        server: Some(Server {
            url: "http://127.0.0.1:11434".into(),
            version: Some("0.1.0".into()),
            pid: Some(4242),
            cpu_percent: Some(187.5),
            resident_bytes: Some(536_870_912),
            generated_tokens_per_second: Some(34.2 * wave),
            prompt_tokens_per_second: Some(120.0),
            running: Some(2),
            waiting: Some(0),
            models: vec![Model {
                name: "qwen3:0.6b".into(),
                size_bytes: 523_000_000,
                size_vram_bytes: 0,
                context_length: 4096,
            }],
            problem: None,
        }),
        problems: Vec::new(),
    }
}

fn state(ascii: bool) -> State {
    let mut state = State::new(Duration::from_secs(1), ascii);
    for moment in 0..95 {
        state.add(sample(moment));
    }
    state
}

fn screen(state: &mut State, width: u16, height: u16) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let look = Look { color: true };
    terminal
        .draw(|frame| draw(frame.area(), frame.buffer_mut(), state, look, "12:34:56"))
        .unwrap();
    terminal.backend().clone()
}

fn press(state: &mut State, key: KeyCode) {
    state.key(KeyEvent::new(key, KeyModifiers::NONE));
}

#[test]
fn screens_of_three_sizes() {
    for (width, height) in [(40, 12), (80, 24), (200, 60)] {
        for (name, ascii) in [("unicode", false), ("ascii", true)] {
            let screen = screen(&mut state(ascii), width, height);
            let cells = screen.buffer().content();
            assert_eq!(cells.iter().all(|cell| cell.symbol().is_ascii()), ascii);
            insta::assert_snapshot!(format!("{width}x{height}_{name}"), screen);
        }
    }
}

#[test]
fn help_frozen_and_hidden_panels() {
    let mut state = state(false);
    press(&mut state, KeyCode::Char('?'));
    insta::assert_snapshot!("help_40x12", screen(&mut state, 40, 12));
    press(&mut state, KeyCode::Esc);
    press(&mut state, KeyCode::Char(' '));
    press(&mut state, KeyCode::Char('2'));
    state.add(Sample {
        problems: vec![Problem {
            subject: "disk",
            path: "/proc/diskstats".into(),
            reason: "permission denied",
        }],
        ..sample(3)
    });
    insta::assert_snapshot!("frozen_80x24", screen(&mut state, 80, 24));
    press(&mut state, KeyCode::Char(' '));
    let text = screen(&mut state, 80, 24).to_string();
    assert!(
        text.contains("! /proc/diskstats: permission denied"),
        "{text}"
    );
    for digit in ['1', '3', '4'] {
        press(&mut state, KeyCode::Char(digit));
    }
    let text = screen(&mut state, 80, 24).to_string();
    assert!(text.contains("All panels are hidden"), "{text}");
}

#[test]
fn large_charts_have_axes_and_pairs_of_rates_one_scale() {
    let mut state = State::new(Duration::from_secs(1), false);
    state.add(sample(1));
    let text = screen(&mut state, 200, 50).to_string();
    for axis in ["100 %", "100 °C", "12.0 MB/s", "1.5 MB/s", "0 B/s"] {
        let is_axis = |part: &str| {
            let rest = part.trim_start_matches(['"', '│', ' ']);
            rest.starts_with(axis) && !part.contains(['█', '░'])
        };
        let is_there = text.lines().flat_map(|line| line.split("││")).any(is_axis);
        assert!(is_there, "{axis}: {text}");
    }
    // 30 kB/s beside 12 MB/s have a bar of one part in four hundred.
    let bar = |row: &str| {
        let line = text.lines().find(|line| line.contains(row)).unwrap();
        line.split("││").next().unwrap().matches('█').count()
    };
    assert!(bar("read  █") > 60 && bar("write ") <= 1, "{text}");
    // There is no room for them here.
    let small = screen(&mut state, 80, 24).to_string();
    assert!(!small.contains("100 °C"), "{small}");
}

#[test]
fn a_small_terminal_shows_everything_by_scrolling() {
    let mut state = state(false);
    let first = screen(&mut state, 40, 12).to_string();
    assert!(
        first.contains("cpu ") && !first.contains("qwen3"),
        "{first}"
    );
    for _ in 0..100 {
        press(&mut state, KeyCode::Down);
    }
    let last = screen(&mut state, 40, 12).to_string();
    assert!(last.contains("qwen3:0.6b 523 MB"), "{last}");
    press(&mut state, KeyCode::Up);
    assert_ne!(screen(&mut state, 40, 12).to_string(), last);
}

#[test]
fn below_the_least_size_a_message_stands() {
    for (width, height) in [(39, 12), (40, 11), (20, 3), (1, 1), (0, 0)] {
        let screen = screen(&mut state(false), width, height);
        // The backend cannot write a screen without columns.
        if width >= 20 {
            let text = screen.to_string();
            assert!(text.contains("needs 40x12"), "{text}");
        }
    }
}

#[test]
fn many_processors_become_a_strip() {
    let mut sample = sample(5);
    let core = |core| Core {
        core,
        percent: Some(f64::from(core % 101)),
    };
    sample.cpu.as_mut().unwrap().cores = (0..256).map(core).collect();
    let mut state = State::new(Duration::from_secs(1), false);
    state.add(sample);
    insta::assert_snapshot!("cores_80x24", screen(&mut state, 80, 24));
}

#[test]
fn colours_follow_the_thresholds_and_can_be_off() {
    let mut state = State::new(Duration::from_secs(1), false);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut color_of_cpu = |percent, color| {
        let mut sample = sample(0);
        sample.cpu.as_mut().unwrap().percent = Some(percent);
        state.add(sample);
        let look = Look { color };
        terminal
            .draw(|frame| draw(frame.area(), frame.buffer_mut(), &mut state, look, ""))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let colors: Vec<_> = buffer.content().iter().map(|cell| cell.fg).collect();
        // The bar of the processors begins in the second line of the screen.
        let bar = buffer.cell((7, 2)).unwrap();
        assert_eq!(bar.symbol(), "█");
        assert_eq!(colors.iter().any(|it| *it != Color::Reset), color);
        (bar.fg, bar.modifier.contains(Modifier::BOLD))
    };
    assert_eq!(color_of_cpu(29.9, true), (Color::Green, false));
    assert_eq!(color_of_cpu(30.0, true), (Color::Yellow, false));
    assert_eq!(color_of_cpu(69.9, true), (Color::Yellow, false));
    assert_eq!(color_of_cpu(70.0, true), (Color::Red, true));
    assert_eq!(color_of_cpu(70.0, false), (Color::Reset, true));
}
