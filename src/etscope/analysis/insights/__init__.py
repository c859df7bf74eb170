"""Why a run takes its time: rules that look at its times, graphs and program."""
