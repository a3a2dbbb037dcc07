//! Threads that call a function and check what it returns. Prints "ready", then waits for a line on stdin; starts, and
//! prints "done"; waits for another, and prints "CALLS WRONG".

use std::{hint::black_box, io::stdin, thread};

#[unsafe(no_mangle)]
#[inline(never)]
pub fn work(a: u64, b: &str) -> Result<String, u64> {
    if a % 3 == 0 { Err(a) } else { Ok(format!("{b}{a}")) }
}

fn line() {
    stdin().read_line(&mut String::new()).unwrap();
}

fn main() {
    println!("ready");
    line();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(|| {
                let mut wrong = 0;
                for a in 0..20_000 {
                    let right = match work(black_box(a), black_box("x")) {
                        Err(b) => a % 3 == 0 && b == a,
                        Ok(text) => text.strip_prefix('x').and_then(|text| text.parse().ok()) == Some(a),
                    };
                    wrong += u64::from(!right);
                }
                wrong
            })
        })
        .collect();
    let wrong: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("done");
    line();
    println!("160000 {wrong}");
    line();
}
