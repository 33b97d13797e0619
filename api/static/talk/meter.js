// How loud a stream is, 0 to 1, told on every animation frame until stopped.

export class Meter {
  #context = new AudioContext();
  #frame = 0;

  constructor(stream, show) {
    const analyser = this.#context.createAnalyser();
    analyser.fftSize = 512;
    this.#context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    const measure = () => {
      analyser.getFloatTimeDomainData(samples);
      const power = samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
      show(Math.min(1, Math.sqrt(power) * 4));
      this.#frame = requestAnimationFrame(measure);
    };
    measure();
  }

  stop() {
    cancelAnimationFrame(this.#frame);
    this.#context.close();
  }
}
