"""How many triggers one triggerer process can carry that wait for passcodes and for delivery."""
