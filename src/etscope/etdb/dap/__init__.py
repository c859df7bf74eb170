"""The Debug Adapter Protocol: a session of etdb in an editor. Nothing else imports this package."""
