"""Call progress analysis (CPA, AMD): whether a person, a machine or the network answered an outbound call."""
