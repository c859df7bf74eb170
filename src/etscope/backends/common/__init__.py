"""Parts shared by several backends: logged calls, inner values, traces, options."""
