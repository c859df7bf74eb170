"""What several backends share: logged calls, inner values, traces, options."""
