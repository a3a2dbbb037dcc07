//! What the page shows of an experiment on several targets.

mod matrix;
mod tables;

pub(crate) use self::matrix::MatrixSection;
